"""The acceptance table over what stages left: what fails, what is open, what was not tested, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.paths import StagesPaths
from seatrial_runbooks.sparse_lm.acceptance import Row, Target, acceptance_rows, exit_code
from seatrial_runbooks.sparse_lm.deliverables import main

STAGES = ("snapshot", "parity", "baseline", "buckets", "audit", "v2", "nvtx", "scaling", "fused", "long-run")
V2, BUCKET, PROFILE = "selection v2 at least", "a bucket size selected", "the host's share"
INTERVAL, NO_INTERVAL = {"mean": 0.99, "low": 0.98, "high": 1.01}, {"mean": 0.99, "low": None, "high": None}
BEST = {"group": "bucket50", "tied": True, "can_win": True, "ratio": None}
RECOMMENDED = "No winner by throughput is proven. … Recommended: bucket25. Latency winner: bucket50"


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """Every stage was run and left nothing."""
    note(tmp_path)
    return Target(out=tmp_path, cpu=False)


def note(out: Path, **not_run: str) -> None:
    """stages.json with those that were not run, and why."""
    records = {name: {"exit_code": None if name in not_run else 0, "why": not_run.get(name, "")} for name in STAGES}
    write(StagesPaths(out).stages, {"name": "validation", "stages": records})


def row(target: Target, criterion: str) -> Row:
    [found] = [row for row in acceptance_rows(target) if row.criterion.startswith(criterion)]
    return found


def attempt(target: Target, stage: str) -> Path:
    folder = target.campaign(stage).folder / "one_r0" / "attempt-1"
    folder.mkdir(parents=True)
    return folder


def test_a_stage_that_left_nothing_has_failed_and_one_that_was_not_run_is_not_tested(target: Target) -> None:
    rows = acceptance_rows(target)
    assert {row.status for row in rows if row.criterion.startswith(("baseline", "near-linear", "long run", "fused", BUCKET))} == {"FAIL"}
    assert exit_code(rows) == 2
    note(target.out, scaling="needs 2 GPUs, and this machine has 1 GPU")
    found = row(target, "near-linear scaling")
    assert (found.status, found.found) == ("NOT TESTED", "needs 2 GPUs, and this machine has 1 GPU")


def test_a_failed_baseline_is_a_row_of_its_own(target: Target) -> None:
    finding = {
        "kind": "criterion",
        "criterion": {"metric": "failed_runs"},
        "verdict": "FAIL",
        "text": "1 of 1 failed",
        "evidence": [{"file": "manifest.csv", "window": "", "n": 1}],
    }
    write(target.campaign("baseline").verdict, {"findings": [finding]})
    found = row(target, "baseline: failed_runs")
    assert (found.status, found.found, found.n) == ("FAIL", "1 of 1 failed", 1) and found.file.endswith("baseline/manifest.csv")


@pytest.mark.parametrize(
    ("log", "status", "found"),
    [
        ("v2_performance_improvement: v1 46.55 ms, v2 0.359 ms, ratio 130x at (2, 256, 4, 32)\n", "PASS", "v1 46.55 ms"),
        ("v2_performance_improvement: v1 46.55 ms, v2 0.900 ms, ratio 52x at (2, 256, 4, 32)\n", "FAIL", "ratio 52x"),
        ("SKIPPED [1] f.py:1: NOT TESTED: no CUDA device, and the ratio …\n1 skipped in 1.0s\n", "NOT TESTED", "no CUDA device"),
        ("ERROR f.py - ImportError: libcudart\n1 error in 1.0s\n", "FAIL", "the test printed no ratio: 1 error in 1.0s"),
    ],
)
def test_the_ratio_of_v2_and_why_there_is_none(target: Target, log: str, status: str, found: str) -> None:
    write(target.log("v2"), log)
    assert row(target, V2).status == status and found in row(target, V2).found


@pytest.mark.parametrize(
    ("ranking", "status"),
    [
        ({"decided": True, "recommended": "bucket50", "groups": [BEST]}, "PASS"),
        ({"recommended": "bucket25", "groups": [BEST, {**BEST, "ratio": INTERVAL}, {**BEST, "ratio": INTERVAL, "tied": False}]}, "PASS"),
        ({"recommended": "bucket25", "groups": [BEST, {**BEST, "ratio": NO_INTERVAL}]}, "INCONCLUSIVE"),
        ({"recommended": "bucket50", "groups": [BEST, {**BEST, "ratio": INTERVAL, "tied": False}]}, "INCONCLUSIVE"),
        ({"recommended": "bucket50", "confounded": "…", "groups": [BEST, {**BEST, "ratio": INTERVAL}]}, "INCONCLUSIVE"),
        ({"recommended": None, "groups": []}, "INCONCLUSIVE"),
    ],
    ids=["winner", "tie", "no interval", "no steady state", "confounded", "none"],
)
def test_a_bucket_is_selected_by_a_difference_or_a_tie_that_intervals_show(target: Target, ranking: dict[str, Any], status: str) -> None:
    write(attempt(target, "buckets") / "env.json", {"world_size": 2})
    write(target.campaign("buckets").summary_json, {"winners": RECOMMENDED, "best": {"group": "x"}, "ranking": ranking, "runs": [1, 2]})
    found = row(target, BUCKET)
    assert (found.status, found.n) == (status, 2)
    assert found.found.startswith("No winner by throughput is proven") and "Latency" not in found.found


def test_buckets_of_one_rank_and_a_profile_on_a_gpu(target: Target) -> None:
    write(attempt(target, "buckets") / "env.json", {"world_size": 1})
    write(target.campaign("buckets").summary_json, {"ranking": {"decided": True}})
    assert row(target, BUCKET).status == "NOT TESTED"
    summary = attempt(target, "nvtx") / "profile_summary.txt"
    stage = "stage 0.50 ms  nsa.sel.ranges_v2\npython 0.70 ms  loop\n"
    for share, status in (("40.0", "PASS"), ("60.0", "FAIL")):
        summary.write_text(f"run_id x\nhost share {share} % of 1.0 ms: no kernel ran in it\n{stage}")
        assert row(target, PROFILE).status == status
        assert row(target, PROFILE).found == f"host share {share} %; nsa.sel.ranges_v2 present; top frame loop"


def test_without_any_stage_the_table_is_not_tested_and_the_index_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cpu", "--out", str(tmp_path)]) == 3
    assert "0 PASS, 0 FAIL, 0 INCONCLUSIVE" in capsys.readouterr().out
    assert "(acceptance.md)" in (tmp_path / "deliverables" / "index.md").read_text()
