"""`extends`: what a plan takes from the one beneath it, and which file an error points into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.errors import PlanError
from seatrial.plan.load import load_plan

BASE = """\
name: base
workload: dummy
settings: {step_ms: 5, jitter_ratio: 0}
launcher: torchrun
axes:
  micro_batch: {label: batch, values: [8, 16]}
  num_workers: [0, 2]
criteria:
  - {metric: failed_runs, at_most: 0}
limits: {run_s: 60}
"""


def test_mappings_are_merged_and_everything_else_replaced(plan_file: Callable[..., Path]) -> None:
    plan_file(BASE, "shared/base.yaml")
    text = (
        "extends: shared/base.yaml\nname: child\nsettings: {step_ms: 9}\nlauncher: {args: [--max-restarts, 0]}\n"
        "axes: {micro_batch: [32]}\ncriteria: []\n"
    )
    plan = load_plan(plan_file(text))

    assert plan.name == "child"
    assert plan.settings == {"step_ms": 9, "jitter_ratio": 0}
    assert (plan.launcher.kind, plan.launcher.args) == ("torchrun", ["--max-restarts", "0"])
    assert {name: (axis.label, axis.values) for name, axis in plan.axes.items()} == {
        "micro_batch": (None, [32]),
        "num_workers": (None, [0, 2]),
    }
    assert plan.criteria == []
    assert plan.limits.run_s == 60


def test_a_chain_of_plans(plan_file: Callable[..., Path]) -> None:
    plan_file(BASE, "a/base.yaml")
    plan_file("extends: ../a/base.yaml\nrepeats: 3\n", "b/middle.yaml")
    plan = load_plan(plan_file("extends: b/middle.yaml\nseed: 7\n"))

    assert (plan.name, plan.repeats, plan.seed) == ("base", 3, 7)


def test_another_workload_takes_the_place_of_the_one_beneath(plan_file: Callable[..., Path]) -> None:
    plan_file("name: base\nworkload: {module: dummy, env: {A: 1}}\n", "base.yaml")
    plan = load_plan(plan_file("extends: base.yaml\nworkload: {script: train.py}\n"))

    assert (plan.workload.module, plan.workload.script, plan.workload.env) == (None, "train.py", {"A": "1"})


def test_null_takes_a_value_back(plan_file: Callable[..., Path]) -> None:
    plan_file('name: base\nworkload: dummy\nplace: {include: "localhost:0"}\n', "base.yaml")
    plan = load_plan(plan_file("extends: base.yaml\nplace: {include: null, ranks: 4}\n"))

    assert (plan.place.include, plan.place.ranks) == (None, 4)


def test_an_error_points_into_the_file_that_holds_the_key(plan_file: Callable[..., Path]) -> None:
    plan_file("name: base\nworkload: dummy\n\nlimits:\n  run_s: 60\n  strt_s: 3\n", "base.yaml")
    with pytest.raises(PlanError) as caught:
        load_plan(plan_file("extends: base.yaml\nlimits: {run_s: 5}\n"))
    assert str(caught.value) == "base.yaml:6: limits.strt_s: unknown key; did you mean 'start_s'?"

    plan_file("name: base\nworkload: dummy\nlimits: {run_s: 60}\n", "base.yaml")
    with pytest.raises(PlanError) as caught:
        load_plan(plan_file("extends: base.yaml\n\nlimits: {run_s: soon}\n"))
    assert str(caught.value) == "p.yaml:3: limits.run_s: must be a number, not 'soon' (text)"


def test_plans_that_extend_each_other_are_named(plan_file: Callable[..., Path]) -> None:
    plan_file("extends: c.yaml\n", "b.yaml")
    plan_file("extends: b.yaml\n", "c.yaml")
    with pytest.raises(PlanError) as caught:
        load_plan(plan_file("extends: b.yaml\n"))
    assert str(caught.value) == "c.yaml:1: extends: plans extend each other in a circle: b.yaml → c.yaml → b.yaml"


def test_a_plan_that_is_not_there_and_a_name_that_is_none(plan_file: Callable[..., Path]) -> None:
    with pytest.raises(PlanError, match=r"^p.yaml:2: extends: there is no plan gone.yaml; the path is relative to \.$"):
        load_plan(plan_file("name: x\nextends: gone.yaml\n"))
    with pytest.raises(PlanError, match=r"^p.yaml:1: extends: must be the path of another plan, relative to this file$"):
        load_plan(plan_file("extends: [a.yaml]\n"))
