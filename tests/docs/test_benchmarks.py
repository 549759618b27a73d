"""Every benchmark runs with --quick, through the same code, to its last line. Its figures are not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.chromium import required_browser

pytestmark = pytest.mark.docs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Imported or started by benchmarks.
PARTS = {"outcome", "eta_jobs", "endurance_job", "leak_series", "stage1_stock"}
NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in PARTS)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_to_its_last_line(name: str) -> None:
    if name == "page_scale":
        required_browser()
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["benchmark"] == name
    assert last["holds"] is None
    assert "skipped" in last or (last["quick"] and last["figures"])
    assert set(last["bounds"]) <= set(last["figures"])


def test_make_bench_runs_all() -> None:
    makefile = (BENCHMARKS.parent / "Makefile").read_text().replace("\\\n", " ")
    listed = next(line for line in makefile.splitlines() if line.startswith("BENCHMARKS :="))
    assert sorted(listed.partition(":=")[2].split()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_has_the_command(name: str) -> None:
    assert f"python benchmarks/{name}.py" in (BENCHMARKS / f"{name}.py").read_text()
