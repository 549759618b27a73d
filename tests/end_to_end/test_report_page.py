"""The page of real campaigns, drawn as pictures, printed and laid beside another through the real command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from seatrial.paths import CampaignPaths
from seatrial.report.html.pdf import find_browser
from tests.harness import Harness

PLAN = """
name: paged
workload: dummy
settings: {{step_ms: {step_ms}, jitter_ratio: 0.05, warmup_steps: 3}}
launcher: python
place: {{kind: local, ranks: 1}}
repeats: 2
steps: 40
telemetry: {{gpu_s: null, host_s: 0.5}}
output: {out}
"""
NO_BROWSER = "no Chromium, Chrome or Edge is installed here"


@pytest.fixture
def campaigns(harness: Harness) -> tuple[CampaignPaths, CampaignPaths]:
    for out, step_ms in (("slow", 16), ("fast", 8)):
        harness.run("run", str(harness.plan(PLAN.format(out=out, step_ms=step_ms), f"{out}.yaml")))
    return CampaignPaths(harness.folder / "slow"), CampaignPaths(harness.folder / "fast")


def told(text: str) -> dict[str, Any]:
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert isinstance(found, dict)
    return found


def test_pictures_print_and_comparison(harness: Harness, campaigns: tuple[CampaignPaths, CampaignPaths]) -> None:
    slow, fast = campaigns
    said = harness.run("report", "slow", "--png", "--compare", "fast", "--json", *(["--pdf"] if find_browser() else []))
    line = told(said)
    assert line["html"] == str(slow.summary_html.relative_to(harness.folder))
    assert [Path(path).name for path in line["png"]][:1] == ["ranking.png"]
    assert "charts/ranking.png" in slow.summary_md.read_text()
    (compared,) = line["comparison"]["comparisons"]
    assert f"{compared['b']} against {compared['a']}: {compared['relation']}" in said and compared["a"].startswith("slow:")
    page = (slow.folder / "compare_fast.html").read_text()
    assert compared["relation"] in page and "step_ms" in page and 'id="chart-steps"' in page
    assert not (fast.folder / "compare_slow.html").exists()
    if line["pdf"] is None:
        pytest.skip(f"the PDF was not tried: {NO_BROWSER}")
    printed = slow.summary_pdf.read_bytes()
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) > 1
