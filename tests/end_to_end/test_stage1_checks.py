"""The two checks of the stage-1 procedure on a real campaign."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

from tests.harness import Harness

SCRIPTS = Path(__file__).parents[2] / "runbooks" / "stage1" / "scripts"
PLAN = """
name: checked
workload: dummy
settings: {step_ms: 5, jitter_ratio: 0.01}
launcher: python
axes: {drift_ratio: {label: d, values: [1.0, 4.0]}}
prefix: sweep
repeats: 2
order: nested
steps: 160
timing: {log_every: 5}
telemetry: {gpu_s: 0.5, host_s: 0.5}
output: out
"""


def checked(script: str, *argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPTS / script), *map(str, argv)], capture_output=True, text=True, check=False)


def test_both_checks_read_a_campaign_that_was_run(harness: Harness) -> None:
    harness.run("run", str(harness.plan(PLAN)))
    root = harness.out.folder
    groups = list(dict.fromkeys(row["group"] for row in harness.manifest()))
    assert len(groups) == 2

    # Generous limits: the noise of this machine is not under test.
    limits = ("--min-repeats", 2, "--max-iter-ratio-median", 50, "--max-iter-ratio-max", 50, "--max-iter-p50-cv", 10)
    held = checked("check_phaseb_stability.py", "--output-root", root, "--groups", ",".join(groups), *limits)
    assert held.returncode == 0, held.stdout + held.stderr
    assert held.stdout.splitlines()[-2:] == [f"[PASS] {group}: stable over 2 repeats" for group in groups]
    failed = checked("check_phaseb_stability.py", "--output-root", root, "--groups", groups[0])
    assert failed.returncode == 2 and "successful repeats: 2, at least 3 are needed" in failed.stdout

    whole = checked("quick_leak_diagnose.py", root)
    assert whole.returncode == 0, whole.stderr
    rows = list(csv.DictReader(io.StringIO(whole.stdout)))
    assert [(row["group"], row["status"]) for row in rows] == [(group, "success") for group in groups for _ in (1, 2)]
    drifted = {row["group"]: float(row["iter_tail_vs_head_pct"]) for row in rows}
    # Slower steps alone are no leak.
    assert drifted[groups[1]] > 20 and rows[-1]["verdict"] == "not_enough_data" and "slower: steps took" in whole.stderr
    assert {row["host_rss_tail_slope_mib_min"] for row in rows} == {""}, "a few seconds of samples have no slope"
    one = checked("quick_leak_diagnose.py", root / f"{groups[1]}_r2")
    assert list(csv.DictReader(io.StringIO(one.stdout))) == rows[-1:]
    assert "our layout (rss_kib, train_proc_count)" in one.stderr
