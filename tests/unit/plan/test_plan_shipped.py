"""The plans that come with Seatrial load, expand, and hold what their comments promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan

PLANS = Path(__file__).parents[3] / "plans"


def _resolved(path: Path) -> CampaignPlan:
    return resolve(load_plan(path), source=str(path), cwd=PLANS.parent)


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_plan_expands_under_its_own_name(path: Path) -> None:
    plan = _resolved(path)
    assert plan.name == path.stem
    assert plan.runs
    assert Path(plan.output) == PLANS.parent / "outputs" / path.stem
    assert path.read_text().startswith("# ")


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
