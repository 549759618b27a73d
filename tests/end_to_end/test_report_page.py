"""The report page of a real campaign with pictures, compared with another, through the real command line. PDFs: tests/browser."""

from __future__ import annotations

import json
from pathlib import Path

from seatrial.core.paths import CampaignPaths
from tests.harness import Harness

PLAN = """
name: paged
workload: dummy
settings: {{step_ms: {step_ms}, jitter_ratio: 0.05, warmup_steps: 3}}
launcher: python
place: {{kind: local, ranks: 1}}
repeats: 1
steps: 40
telemetry: {{gpu_s: null, host_s: 0.5}}
output: {out}
"""


def test_pictures_and_comparison(harness: Harness) -> None:
    for out, step_ms in (("slow", 16), ("fast", 8)):
        harness.run("run", str(harness.plan(PLAN.format(out=out, step_ms=step_ms), f"{out}.yaml")))
    slow = CampaignPaths(harness.folder / "slow")
    text = harness.call("report", "slow", "--png", "--compare", "fast", "--json")
    document = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert document["html"] == str(slow.summary_html.relative_to(harness.folder))
    assert [Path(path).name for path in document["png"]][:1] == ["ranking.png"]
    assert "charts/ranking.png" in slow.summary_md.read_text()
    (compared,) = document["comparison"]["comparisons"]
    assert f"{compared['b']} against {compared['a']}: {compared['relation']}" in text and compared["a"].startswith("slow:")
    page = (slow.folder / "compare_fast.html").read_text()
    assert compared["relation"] in page and "step_ms" in page and 'id="chart-steps"' in page
    assert not (harness.folder / "fast" / "compare_slow.html").exists()
