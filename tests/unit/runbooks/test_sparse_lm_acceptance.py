"""The acceptance table over what stages left: what fails, what is open, what was not tested, and why."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.paths import StagesPaths
from seatrial.records.codec import to_json
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.verdict import CampaignVerdict, Criterion, Evidence, Finding, Verdict
from seatrial_runbooks.sparse_lm.acceptance import Row, Target, acceptance_rows, exit_code
from seatrial_runbooks.sparse_lm.deliverables import main, write_deliverables

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


def note(out: Path, exit_codes: dict[str, int] | None = None, **not_run: str) -> None:
    """stages.json with those that were not run, and why."""
    codes = {**dict.fromkeys(STAGES, 0), **(exit_codes or {}), **dict.fromkeys(not_run)}
    records = {name: {"exit_code": codes[name], "why": not_run.get(name, "")} for name in STAGES}
    write(StagesPaths(out).stages, {"name": "validation", "stages": records})


def write_failed(target: Target, stage: str, criterion: Criterion, text: str, *evidence: Evidence) -> None:
    """A stage's verdict with one failed criterion."""
    finding = Finding(id="1", criterion=criterion, verdict=Verdict.FAIL, text=text, evidence=evidence)
    write(target.campaign(stage).verdict, to_json(CampaignVerdict(verdict=Verdict.FAIL, findings=(finding,))))


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
    evidence = Evidence(subject="campaign", value=1, file="manifest.csv", n=1)
    write_failed(target, "baseline", Criterion(metric="failed_runs", scope="campaign"), "1 of 1 failed", evidence)
    found = row(target, "baseline: failed_runs")
    assert (found.status, found.found, found.n) == ("FAIL", "1 of 1 failed", 1) and found.file.endswith("baseline/manifest.csv")


GUARDS = "runbooks/sparse-lm/nsa/tests/test_performance_guards.py"
MEASURED = "v2_performance_improvement: v1 46.55 ms, v2 0.467 ms, ratio {}x at (2, 256, 4, 32)\n"


@pytest.mark.parametrize(
    ("log", "status", "found"),
    [
        (MEASURED.format("130.02") + f"PASSED {GUARDS}::test_v2_performance_improvement\n2 passed in 3s\n", "PASS", "ratio 130.02x"),
        # Rounded up when printed: the test compared what it measured.
        (MEASURED.format("100") + f"FAILED {GUARDS}::test_v2_performance_improvement - assert 99.6 >= 100.0\n", "FAIL", "ratio 100x"),
        (f"SKIPPED [2] {GUARDS}:41: NOT TESTED: no CUDA device, and …\n2 skipped in 1.0s\n", "NOT TESTED", "no CUDA device, and …"),
        (f"ERROR {GUARDS} - ImportError: libcudart\n1 error in 1.0s\n", "FAIL", "ImportError: libcudart"),
        (f"PASSED {GUARDS}::test_v2_performance_improvement\n1 passed in 1.0s\n", "FAIL", "printed no ratio"),
        (f"PASSED {GUARDS}::test_v2_does_not_wait_for_the_gpu\n1 passed in 1.0s\n", "FAIL", "no result of test_performance_guards.py"),
    ],
    ids=["passed", "rounded", "skipped", "import", "no ratio", "another test"],
)
def test_the_ratio_of_v2_is_judged_by_its_test(target: Target, log: str, status: str, found: str) -> None:
    write(target.log("v2"), log)
    assert (row(target, V2).status, found in row(target, V2).found) == (status, True), row(target, V2)


def test_each_row_depends_on_its_own_tests(target: Target) -> None:
    dense, group = "attention equals dense", "the heads of a group"
    note(target.out, exit_codes={"parity": 1})
    write(
        target.log("parity"),
        "FAILED nsa/tests/test_equiv_small.py::test_a[1] - assert 0\nPASSED nsa/tests/test_group_consistency.py::test_b\n",
    )
    assert (row(target, dense).status, row(target, group).status) == ("FAIL", "PASS")
    assert row(target, group).found == "1 passed" and "test_equiv_small.py::test_a[1]" in row(target, dense).found
    write(target.log("parity"), "no tests ran in 0.01s\n")
    assert row(target, group).status == "FAIL" and "no tests ran" in row(target, group).found


FLEX = {"nsa.cmp.attn": "matmul", "nsa.sel.attn": "flex", "nsa.win.attn": "flex"}


@pytest.mark.parametrize(
    ("backends", "status", "found"),
    [
        (FLEX, "PASS", "nsa.sel.attn: flex"),
        ({**FLEX, "nsa.win.attn": "math"}, "FAIL", "nsa.win.attn: math"),
        ({}, "NOT TESTED", "no attention call of the selected and the window branch (no call at all)"),
        ({"nsa.cmp.attn": "matmul", "nsa.sel.attn": "flex"}, "NOT TESTED", "no attention call of the window branch"),
        ({**FLEX, "nsa.sel.attn": "matmul"}, "NOT TESTED", "no attention call of the selected branch"),
    ],
    ids=["kernels", "fallback", "nothing", "one branch", "gathered"],
)
def test_only_what_the_audit_saw_is_judged(target: Target, backends: dict[str, str], status: str, found: str) -> None:
    calls = [{"stage": stage, "backend": backend} for stage, backend in backends.items()]
    write(attempt(target, "audit") / "sdpa_audit.json", {"calls": calls})
    audited = row(target, "attention backends")
    assert audited.status == status and found in audited.found


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize(("requested", "status"), [(1200, "FAIL"), (12, "NOT TESTED")])
def test_too_few_steps_are_a_failure_unless_no_more_were_requested(target: Target, requested: int, cpu: bool, status: str) -> None:
    criterion = Criterion(metric="steps_done", scope="every_run", at_least=1200)
    write_failed(target, "long-run", criterion, "steps_done at least 1,200 steps: 12 steps in base_r1")
    write(attempt(target, "long-run") / "spec.json", {"steps": requested})
    found = row(Target(out=target.out, cpu=cpu), "long run: steps_done")
    assert found.status == status and "12 steps in base_r1" in found.found and "speed" not in found.found
    assert ("12 steps were requested" in found.found) == (requested == 12)


def test_tables_average_only_runs_that_ended_well_and_took_their_steps(target: Target) -> None:
    def leave(run: str, steps: int, speed: float, outcome: str = "ok") -> None:
        folder = target.campaign("buckets").folder / run / "attempt-1"
        rows = "".join(f"{step},1,1,{speed},x\n" for step in range(1, steps + 1))
        write(folder / "training.csv", f"step,loss,lr,toks_per_s,run_id\n{rows}")
        write(folder / "spec.json", {"steps": 200})
        detail = "a rank was killed" if outcome != "ok" else ""
        write(folder / "outcome.json", to_json(RunOutcome(run=run, attempt=1, hash="", outcome=Outcome(outcome), detail=detail)))

    leave("bucket25_r0", 200, 1000)
    leave("bucket25_r1", 200, 1100)
    leave("bucket25_r2", 199, 10, outcome="failed")
    leave("bucket25_r3", 60, 10)
    leave("bucket50_r0", 3, 10, outcome="stalled")
    write_deliverables(target, [])
    with open(target.out / "deliverables" / "bucket_table.csv", newline="") as source:
        best, none = csv.DictReader(source)
    assert (best["group"], best["runs"], best["mean_toks_per_s"]) == ("bucket25", "2", "1050")
    assert (best["n_per_run"], best["window"]) == ("50; 50", "steps 151-200; steps 151-200")
    assert (
        "bucket25_r2 (failed: a rank was killed)" in best["left_out"]
        and "bucket25_r3 (its table has 50 values up to step 60 of 200)" in best["left_out"]
    )
    assert (none["group"], none["runs"], none["mean_toks_per_s"]) == ("bucket50", "0", "")
    assert "- bucket50_r0: stalled: a rank was killed" in (target.out / "deliverables" / "bucket_table.md").read_text()


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
