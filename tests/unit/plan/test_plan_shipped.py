"""The plans that come with Seatrial load, expand, and hold what their comments promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.criteria_catalog import METRICS, SCOPES, metric_entry
from seatrial.records.run_spec import RunSpec

PLANS = Path(__file__).parents[3] / "plans"
VERDICTS = sorted((PLANS / "verdicts").glob("*.yaml"))
# What starting and ending a run of the dummy takes on a quiet machine.
START_S = 0.8


def _resolved(path: Path) -> CampaignPlan:
    return resolve(load_plan(path), source=str(path), cwd=PLANS.parent)


def _length_s(run: RunSpec) -> float:
    """Of a run of the dummy, by its settings."""
    told = run.settings
    work_ms = float(told["step_ms"]) * (0.5 + 0.5 * float(told["micro_batch"]) / 8)
    if told["slow_rank"] is not None:
        work_ms *= float(told["slow_factor"])
    bursts_ms = float(told["burst_ms"]) / float(told["burst_every"]) if told["burst_every"] else 0.0
    wait_ms = float(told["data_wait_ms"]) / (1 + float(told["num_workers"]))
    return START_S + float(told["steps"]) * (work_ms + wait_ms + bursts_ms) / 1000


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_plan_expands_under_its_own_name(path: Path) -> None:
    plan = _resolved(path)
    assert plan.name == path.stem
    assert plan.runs
    assert Path(plan.output) == PLANS.parent / "outputs" / path.stem
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("path", sorted(PLANS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_plan_of_every_folder_can_be_judged(path: Path) -> None:
    plan = _resolved(path)
    assert plan.name == path.stem and plan.runs
    for criterion in plan.criteria:
        entry = metric_entry(criterion.metric)
        assert entry is not None and criterion.scope in entry.scopes and criterion.unit == entry.unit
        assert not entry.compares or criterion.baseline is not None, "a shipped plan names its baseline"


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_a_plan_to_try_a_verdict_says_what_it_shows_and_takes_less_than_a_minute(path: Path) -> None:
    plan, text = _resolved(path), path.read_text()
    head = text.partition("\nname: ")[0]
    assert Path(plan.output) == PLANS.parent / "outputs/verdicts" / path.stem
    assert f"#   seatrial run plans/verdicts/{path.name}\n" in head and ("PASS" in head) != ("FAIL" in head)
    assert {run.workload.name for run in plan.runs} == {"dummy"}
    assert sum(_length_s(run) for run in plan.runs) < 60


def test_the_accepted_plan_has_criteria_of_every_kind() -> None:
    plan = _resolved(PLANS / "verdicts/accepted.yaml")
    entries = [METRICS[criterion.metric] for criterion in plan.criteria]
    assert {criterion.scope for criterion in plan.criteria} == set(SCOPES)
    assert {entry.compares for entry in entries} == {True, False}
    assert {entry.needs_bound for entry in entries} == {True, False}
    assert plan.sentinel_group == "nw2"


@pytest.mark.parametrize("gpus", ["4090", "v100"])
def test_phase_b_asks_for_the_whole_acceptance(gpus: str) -> None:
    plan = _resolved(PLANS / f"stage1/phase-b-stability-{gpus}.yaml")
    assert {criterion.ready for criterion in plan.criteria} == {"stage1_stability"}
    bounds = {criterion.metric: (criterion.at_least, criterion.at_most) for criterion in plan.criteria}
    assert bounds["iter_ratio_median"] == (None, 1.5) and bounds["iter_ratio_max"] == (None, 2.5)
    assert bounds["throughput_cv_pct"] == (None, 5) and bounds["counted_runs"] == (3, None)


def test_old_against_tuned_asks_for_the_speed_up_with_comparable_loss() -> None:
    compared = {one.metric: one for one in _resolved(PLANS / "stage1/ab.yaml").criteria if one.baseline}
    assert set(compared) == {"speedup_pct", "loss_comparable"}
    assert {one.baseline.group for one in compared.values() if one.baseline} == {"old_like"}
    assert compared["speedup_pct"].at_least == 8
    assert all("wall_clock_breakdown" in run.varied for run in _resolved(PLANS / "stage1/ab.yaml").runs), "or compare would refuse it"


def test_the_demo_is_two_axes_by_two_values_by_three_repeats_on_two_ranks() -> None:
    plan = _resolved(PLANS / "tiny-lm-demo.yaml")
    assert [len(values) for values in plan.axes.values()] == [2, 2]
    assert {run.group for run in plan.runs} == {"mb8_nw0", "mb8_nw2", "mb16_nw0", "mb16_nw2"}
    assert len(plan.runs) == 12
    assert {(run.launcher.kind, run.place.ranks, run.place.devices) for run in plan.runs} == {("torchrun", 2, ())}


def test_the_smoke_plan_needs_no_torch() -> None:
    runs = _resolved(PLANS / "dummy-smoke.yaml").runs
    assert {(run.workload.name, run.launcher.kind, run.place.ranks) for run in runs} == {("dummy", "python", 2)}


def test_the_gpu_plan_uses_one_gpu_in_bf16() -> None:
    runs = _resolved(PLANS / "tiny-lm-gpu.yaml").runs
    assert {(run.place.devices, run.settings["precision"]) for run in runs} == {(("0",), "bf16")}
