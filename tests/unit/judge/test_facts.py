"""Runs of a campaign sorted by how they ended."""

from __future__ import annotations

import dataclasses

from seatrial.judge.facts import Facts, fault, is_spoilt, sort_runs
from seatrial.records.outcome import Cause, Fault, Outcome
from seatrial.records.results import MeasuredRun
from tests.unit.judge.campaigns import clean_runs, spoilt
from tests.unit.report import factory


def sorted_runs(*runs: MeasuredRun, pending: tuple[str, ...] = (), groups: tuple = ()) -> Facts:
    return sort_runs(runs, groups, factory.ranking(), pending)


def names(runs: tuple[MeasuredRun, ...]) -> list[str]:
    return [run.attempt.spec.run for run in runs]


def test_every_end_has_its_place() -> None:
    waiting = [
        factory.measured(group, repeat, how=how)
        for group, repeat, how in (("mb16_nw0", 1, Outcome.INTERRUPTED), ("mb16_nw0", 2, Outcome.SKIPPED), ("mb16_nw2", 2, None))
    ]
    found = sorted_runs(clean_runs()[0], factory.oom("mb8_nw2", 1), spoilt("mb8_nw2", 2), *waiting, pending=("x_r1", "mb16_nw0_r1"))
    assert (names(found.ok), names(found.failed), names(found.spoilt)) == (["mb16_nw2_r1"], ["mb8_nw2_r1"], ["mb8_nw2_r2"])
    assert found.pending == ("x_r1", "mb16_nw0_r1", "mb16_nw0_r2", "mb16_nw2_r2")
    assert names(found.finished) == ["mb16_nw2_r1", "mb8_nw2_r1", "mb8_nw2_r2"]


def test_old_attempts_are_left_out() -> None:
    run = clean_runs()[0]
    old = dataclasses.replace(run, attempt=dataclasses.replace(run.attempt, current=False))
    assert sorted_runs(old).finished == () and sorted_runs(old).pending == ()


def test_a_run_set_aside_is_not_judged_unless_it_failed() -> None:
    first, second = clean_runs()[:2]
    aside = factory.summary("mb16_nw2", set_aside_runs=1)
    aside = dataclasses.replace(aside, counted=("mb16_nw2_r1",), group_key=first.attempt.spec.key)
    assert names(sorted_runs(first, second, groups=(aside,)).ok) == ["mb16_nw2_r1"]
    whole = dataclasses.replace(aside, set_aside_runs=0)
    assert names(sorted_runs(first, second, groups=(whole,)).ok) == ["mb16_nw2_r1", "mb16_nw2_r2"]


def test_runs_of_a_group_and_those_to_come_by_their_names() -> None:
    group = factory.summary("mb16_nw2")
    facts = dataclasses.replace(
        sorted_runs(*clean_runs(), groups=(group,), pending=("mb16_nw2_r3", "mb16_nw2_rest_r1", "mb8_r1")), left_out=("mb8_nw2_r1",)
    )
    assert names(facts.runs_of(facts.groups[0])) == ["mb16_nw2_r1", "mb16_nw2_r2"]
    assert facts.pending_of("mb16_nw2") == facts.pending_of("mb16_nw2~a1b2") == ("mb16_nw2_r3",)
    assert facts.left_out_of("mb8_nw2") == ("mb8_nw2_r1",) and facts.left_out_of("mb8") == ()
    assert facts.group("mb16_nw2") is facts.groups[0] and facts.group("x") is None is facts.group(None)


def test_sentinels_are_no_groups_and_what_the_platform_failed_is_told() -> None:
    sentinel = factory.summary("mb16_nw2", mode="sentinel")
    failed = factory.summary("mb8_nw2", infrastructure_failures=("mb8_nw2_r2 (io_error)",))
    facts = sorted_runs(groups=(sentinel, failed))
    assert [group.group for group in facts.groups] == ["mb8_nw2"] and facts.spoilt_runs == ("mb8_nw2_r2 (io_error)",)


def test_whose_fault_an_end_was() -> None:
    assert is_spoilt(spoilt("mb8_nw2", 1)) and not is_spoilt(clean_runs()[0])
    assert fault(factory.measured("mb8_nw2", 1, how=None)) is Fault.UNKNOWN
    assert fault(factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.IO_ERROR)) is Fault.INFRASTRUCTURE
