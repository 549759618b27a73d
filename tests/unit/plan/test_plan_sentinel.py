"""The sentinel: one group run again in between, under a name, a mode and a hash of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.plan.estimate import estimate
from seatrial.plan.sentinel import in_between
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import from_json, to_json

Resolved = Callable[..., CampaignPlan]
MATRIX: dict[str, Any] = {
    "name": "x",
    "workload": "dummy",
    "axes": {"micro_batch": [8, 16], "num_workers": [0, 2]},
    "order": "rounds",
}
HEAD = "name: x\nworkload: dummy\naxes: {micro_batch: [8, 16]}\n"


@pytest.mark.parametrize(
    ("runs", "every", "expected"),
    [
        ("abcd", 2, "1ab2cd3"),
        ("abcd", 3, "1abc2d3"),
        ("abcd", 4, "1abcd2"),
        ("abcd", 9, "1abcd2"),
        ("abc", 1, "1a2b3c4"),
        ("a", 4, "1a2"),
    ],
)
def test_it_is_first_last_and_after_every_so_many(runs: str, every: int, expected: str) -> None:
    assert "".join(in_between(runs, every, str)) == expected


def test_its_runs_stand_among_the_others(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": 2})

    assert [run.run for run in plan.runs] == [
        "sentinel_r1",
        "mb8_nw0_r1",
        "mb8_nw2_r1",
        "sentinel_r2",
        "mb16_nw0_r1",
        "mb16_nw2_r1",
        "sentinel_r3",
    ]
    assert (plan.sentinel_group, plan.sentinel_every) == ("mb8_nw0", 2)
    watching = [run for run in plan.runs if run.mode == "sentinel"]
    assert {(run.group, run.lane) for run in watching} == {("sentinel", False)}
    assert [run.repeat for run in watching] == [1, 2, 3]


def test_it_does_the_group_s_work_and_is_no_repeat_of_it(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": {"every": 4}})
    watching, first = plan.runs[0], plan.runs[1]

    assert (watching.settings, watching.axes, watching.workload, watching.place) == (
        first.settings,
        first.axes,
        first.workload,
        first.place,
    )
    assert watching.group_key != first.group_key and watching.hash != first.hash
    assert len({run.hash for run in plan.runs}) == len(plan.runs)


def test_it_changes_nothing_in_the_other_runs(resolved: Resolved) -> None:
    with_it = [run for run in resolved({**MATRIX, "sentinel": 2}).runs if run.mode != "sentinel"]
    assert with_it == list(resolved(MATRIX).runs)


def test_more_repeats_leave_its_earlier_runs_finished(resolved: Resolved) -> None:
    once = {run.run: run.hash for run in resolved({**MATRIX, "sentinel": 2}).runs}
    twice = {run.run: run.hash for run in resolved({**MATRIX, "sentinel": 2, "repeats": 2}).runs}
    assert once.items() <= twice.items()


@pytest.mark.parametrize(
    ("sentinel", "expected"),
    [
        ({"every": 4, "group": "mb16_nw2"}, "mb16_nw2"),
        ({"every": 4, "settings": {"num_workers": 2}}, "mb8_nw2"),
        ({"every": 4, "settings": {"num_workers": 2, "micro_batch": 16}}, "mb16_nw2"),
        ({"every": 4}, "mb8_nw0"),
    ],
)
def test_the_group_is_chosen_by_name_or_by_values(sentinel: dict[str, Any], expected: str, resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": sentinel})
    assert plan.sentinel_group == expected
    chosen = next(run for run in plan.runs if run.group == expected)
    assert plan.runs[0].settings == chosen.settings


def test_of_a_script(resolved: Resolved) -> None:
    workload = {"script": "t.py", "args": ["--bs", "{bs}", "--out", "{run}"]}
    plan = resolved({"name": "x", "workload": workload, "axes": {"bs": [8, 16]}, "sentinel": 2, "order": "rounds"})
    assert [run.workload.args for run in plan.runs] == [
        ("--bs", "8", "--out", "sentinel_r1"),
        ("--bs", "8", "--out", "bs8_r1"),
        ("--bs", "16", "--out", "bs16_r1"),
        ("--bs", "8", "--out", "sentinel_r2"),
    ]
    assert len({run.group_key for run in plan.runs}) == 3


def test_only_leaves_it_out_unless_it_is_asked_for(resolved: Resolved) -> None:
    asked = {**MATRIX, "sentinel": 2}
    assert resolved(asked, only=["mb8_*"]).selected == ("mb8_nw0_r1", "mb8_nw2_r1")
    assert resolved(asked, only=["sentinel"]).selected == ("sentinel_r1", "sentinel_r2", "sentinel_r3")


def test_it_counts_in_the_estimate_and_survives_the_file(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": 2, "limits": {"run_s": 10}})
    known = estimate(plan, {plan.runs[1].group_key: 5.0})
    assert (known.runs, known.groups, known.total_s, known.at_most_s) == (7, 5, 35.0, 70.0)
    assert from_json(CampaignPlan, to_json(plan)) == plan


def test_none_takes_off_what_a_plan_below_has(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "sentinel": None})
    assert (plan.sentinel_group, plan.sentinel_every, len(plan.runs)) == ("", None, 4)


WRONG = {
    "sentinel: 0": "sentinel.every: must be at least 1, not 0",
    "sentinel: true": "sentinel: must be a mapping of keys to values, not true (true or false)",
    "sentinel: {group: mb8}": "sentinel.every: is required and missing",
    "sentinel: {evry: 4}": "sentinel.evry: unknown key; did you mean 'every'?",
    "sentinel: {every: 4, group: mb9}": "sentinel.group: no group of this plan is called 'mb9'; did you mean 'mb8'?",
    "sentinel: {every: 4, group: mb8, settings: {micro_batch: 8}}": (
        "sentinel.settings: and `group` both say which group it is; keep one of the two"
    ),
    "sentinel: {every: 4, settings: {micro_bach: 8}}": (
        "sentinel.settings.micro_bach: is no axis of this plan; did you mean 'micro_batch'?"
    ),
    "sentinel: {every: 4, settings: {micro_batch: 9}}": "sentinel.settings.micro_batch: 9 is no value of the axis; it has 8, 16",
    "mode: sentinel": "mode: 'sentinel' is the mode of the runs that the key `sentinel` adds; take another word",
}


@pytest.mark.parametrize("line", WRONG)
def test_one_that_cannot_be_run_is_refused(line: str, complaint: Callable[..., str]) -> None:
    assert complaint(f"{HEAD}{line}\n") == f"p.yaml:4: {WRONG[line]}"


def test_a_group_of_its_name_is_in_the_way(complaint: Callable[..., str]) -> None:
    text = "name: x\nworkload: dummy\naxes: {kind: {bundles: {sentinel: {micro_batch: 8}, other: {micro_batch: 9}}}}\nsentinel: 4\n"
    assert complaint(text) == ("p.yaml:4: sentinel: a group of the plan is called sentinel, as its runs would be; give the plan a prefix")
