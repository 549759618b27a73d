"""`extends`: what a plan takes from the one beneath it, and which file an error points into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.errors import PlanError
from seatrial.plan.load import load_plan
from seatrial.plan.locate import Locations, Where
from seatrial.plan.merge import LONGEST_CHAIN, merged, read_chain

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


def test_what_is_merged_keeps_the_lines_of_both() -> None:
    base, over = Where("base.yaml", 2), Where("child.yaml", 5)
    lines = Locations("base.yaml", {("limits",): base, ("limits", "run_s"): base, ("axes", "bs"): base, ("axes", "bs", "values"): base})
    result = merged(
        {"limits": {"run_s": 1, "term_s": 2}, "axes": {"bs": {"values": [8], "label": "b"}}},
        lines,
        {"limits": {"run_s": 3}, "axes": {"bs": {"values": [9]}}},
        Locations("child.yaml", {("limits", "run_s"): over, ("axes", "bs"): over}),
    )
    assert result == {"limits": {"run_s": 3, "term_s": 2}, "axes": {"bs": {"values": [9]}}}
    assert (lines.of(("limits", "run_s")), lines.of(("limits", "term_s")), lines.of(("axes", "bs", "values"))) == (over, base, over)
    assert lines.source == "child.yaml"


def test_another_workload_takes_the_place_of_the_one_beneath_and_keeps_the_rest() -> None:
    base = {"workload": {"module": "dummy", "env": {"A": "b"}}}
    assert merged(base, Locations(), {"workload": {"script": "t.py"}}, Locations()) == {"workload": {"env": {"A": "b"}, "script": "t.py"}}
    assert merged(base, Locations(), {"workload": {"env": {"A": "c"}}}, Locations()) == {"workload": {"module": "dummy", "env": {"A": "c"}}}


def test_a_plan_alone_is_its_own_chain(plan_file: Callable[..., Path]) -> None:
    mapping, lines = read_chain(plan_file("name: x\nlauncher: torchrun\n"))
    assert mapping == {"name": "x", "launcher": {"kind": "torchrun"}}
    assert lines.of(("launcher", "kind")) == Where("p.yaml", 2)


def test_a_chain_without_end_is_cut_off(plan_file: Callable[..., Path]) -> None:
    plan_file("name: last\n", f"{LONGEST_CHAIN + 1}.yaml")
    for number in range(1, LONGEST_CHAIN + 1):
        plan_file(f"extends: {number + 1}.yaml\n", f"{number}.yaml")
    with pytest.raises(PlanError, match=f"more than {LONGEST_CHAIN} plans extend one another"):
        read_chain(Path("1.yaml"))
    assert read_chain(Path("2.yaml"))[0] == {"name": "last"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("http://host/p.yaml", "is an address, and plans are read from files only"),
        ("folder", "folder is no file"),
        ("''", "must be the path of another plan"),
        ('"a\\x07"', "holds the control character 0x07"),
    ],
)
def test_what_cannot_be_extended(plan_file: Callable[..., Path], name: str, says: str) -> None:
    plan = plan_file(f"extends: {name}\n")
    Path("folder").mkdir()
    with pytest.raises(PlanError, match=f"^p.yaml:1: extends: .*{says}"):
        read_chain(plan)
