"""Criteria that count runs: what is known counts, what cannot be said is no pass."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.health import MemoryVerdict, StragglerVerdict
from seatrial.records.measure import RunHealth
from seatrial.records.outcome import Cause, Fault, Outcome
from seatrial.records.verdict import Criterion, Verdict
from tests.unit.judge.campaigns import GROUPS, changed, clean_runs, course, finding, judged, spoilt, straggler
from tests.unit.report import factory

NO_LEAKS = Criterion(metric="leaking_runs", scope="campaign", at_most=0)
NO_FAILURES = Criterion(metric="failed_runs", scope="campaign", at_most=0)
LEVEL = course(MemoryVerdict.PLATEAU)


def level_runs() -> list:
    return [changed(run, memory=(LEVEL,)) for run in clean_runs()]


def test_a_leak_fails_and_is_told_with_its_slope() -> None:
    runs = level_runs()
    runs[0] = changed(runs[0], memory=(LEVEL, course(MemoryVerdict.LEAK)))
    found = finding(NO_LEAKS, runs=runs)
    assert found.verdict is Verdict.FAIL
    assert found.text == "leaking_runs at most 0: 1 of 4 runs leaks: mb16_nw2_r1 (process tree grows by 12.5 MiB/min (12 to 13))."
    slope = next(evidence for evidence in found.evidence if evidence.value == 12.5)
    assert (slope.subject, slope.unit, slope.n, slope.window) == ("mb16_nw2_r1", "MiB/min", 300, "600 s after warm-up")
    assert slope.file == "mb16_nw2_r1/attempt-1/host_telemetry.csv"


def test_level_memory_passes() -> None:
    assert finding(NO_LEAKS, runs=level_runs()).verdict is Verdict.PASS


def test_a_run_that_cannot_tell_keeps_the_count_from_passing() -> None:
    runs = level_runs()
    runs[1] = changed(runs[1], memory=(course(MemoryVerdict.INCONCLUSIVE),))
    found = finding(NO_LEAKS, runs=runs)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "mb16_nw2_r2: process tree: Too few samples: 12 in 20 s; run at least 5 minutes." in found.text


def test_no_samples_are_no_pass() -> None:
    found = finding(NO_LEAKS)
    assert found.verdict is Verdict.INCONCLUSIVE and "leave `telemetry` on" in found.text


def test_a_failed_run_has_not_shown_that_it_does_not_leak() -> None:
    found = finding(NO_LEAKS, runs=[*level_runs(), factory.oom("mb8_nw2", 2)])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "mb8_nw2_r2: it ended before it could show that (failed: cuda_oom" in found.text


def test_more_leaks_than_allowed_fail_whatever_the_others_are() -> None:
    runs = [changed(run, memory=(course(MemoryVerdict.LEAK),)) for run in clean_runs()[:2]]
    unsaid = changed(clean_runs()[2], memory=(course(MemoryVerdict.INCONCLUSIVE),))
    assert finding(dataclasses.replace(NO_LEAKS, at_most=1), runs=[*runs, unsaid]).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("how", "verdict", "words"),
    [
        (StragglerVerdict.NAMED, Verdict.FAIL, "1 of 1 run is held up by one rank: mb16_nw2_r1 (rank 1)"),
        (StragglerVerdict.NONE, Verdict.PASS, "0 of 1 run"),
        (StragglerVerdict.ABSTAINED, Verdict.INCONCLUSIVE, "Rank 1 of 2 is missing"),
    ],
)
def test_stragglers(how: StragglerVerdict, verdict: Verdict, words: str) -> None:
    run = changed(clean_runs()[0], straggler=straggler(how))
    found = finding(Criterion(metric="straggling_runs", scope="campaign", at_most=0), runs=[run])
    assert found.verdict is verdict and words in found.text


def test_a_single_rank_cannot_straggle_and_unlooked_ranks_are_no_pass() -> None:
    criterion = Criterion(metric="straggling_runs", scope="campaign", at_most=0)
    alone = changed(clean_runs()[0], world_size=1)
    found = finding(criterion, runs=[alone])
    assert found.verdict is Verdict.PASS and found.text.endswith("by one rank: one rank only: nothing to hold up.")
    score = finding(Criterion(metric="straggler_score", scope="every_run", at_most=0.1), runs=[alone])
    assert score.verdict is Verdict.PASS and "one rank only: nothing to hold up" in score.text
    assert finding(Criterion(metric="straggler_score", scope="every_run", at_most=0.1)).verdict is Verdict.INCONCLUSIVE
    assert finding(criterion, runs=[clean_runs()[0]]).verdict is Verdict.INCONCLUSIVE


def test_halted_and_stalled_runs() -> None:
    criterion = Criterion(metric="halted_runs", scope="campaign", at_most=0)
    halted = changed(clean_runs()[0], health=RunHealth(ranks=2, halted=True))
    stalled = factory.measured("mb8_nw2", 1, how=Outcome.STALLED, cause=Cause.STALL)
    assert finding(criterion).verdict is Verdict.PASS
    assert finding(criterion, runs=[halted]).verdict is Verdict.FAIL
    assert finding(criterion, runs=[*clean_runs(), stalled]).verdict is Verdict.FAIL
    assert finding(criterion, runs=[changed(clean_runs()[0], health=None)]).verdict is Verdict.INCONCLUSIVE


def test_a_run_that_the_platform_failed_does_not_count_and_does_not_pass() -> None:
    verdict = judged(NO_FAILURES, runs=[*clean_runs(), spoilt("mb8_nw2", 1)])
    found = verdict.findings[0]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "0 of 5 runs failed" in found.text
    assert "mb8_nw2_r1: failed by the platform (io_error): run it again on a healthy one" in found.text
    assert verdict.notes["runs"] == "4 ended ok, 0 failed, 1 failed by the platform, 0 still to be run"


def test_the_platform_does_not_excuse_the_others() -> None:
    found = finding(NO_FAILURES, runs=[*clean_runs(), spoilt("mb8_nw2", 1), factory.oom("mb8_nw2", 2)])
    assert found.verdict is Verdict.FAIL
    assert "1 of 6 runs failed: mb8_nw2_r2 (failed: cuda_oom)" in found.text


def test_folders_that_do_not_say_whose_fault_it_was_are_told_by_the_registry() -> None:
    old = factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.IO_ERROR, fault=Fault.UNKNOWN)
    assert finding(NO_FAILURES, runs=[*clean_runs(), old]).verdict is Verdict.INCONCLUSIVE


def test_counts_of_groups_name_the_group() -> None:
    runs = [
        changed(run, memory=(course(MemoryVerdict.LEAK if run.attempt.spec.group == GROUPS[0] else MemoryVerdict.PLATEAU),))
        for run in clean_runs()
    ]
    found = finding(Criterion(metric="leaking_runs", scope="every_group", at_most=0), runs=runs)
    assert found.verdict is Verdict.FAIL
    assert "not so in 1 of 2: 2 of 2 runs leak in mb16_nw2" in found.text


def test_without_a_winner_a_count_of_the_winner_is_open() -> None:
    ranking = factory.ranking(winner=None, reason="Every group has a failed run.")
    found = finding(Criterion(metric="leaking_runs", scope="winner", at_most=0), ranking=ranking)
    assert found.verdict is Verdict.INCONCLUSIVE and "there is no winner" in found.text


@pytest.mark.parametrize(
    ("courses", "verdict", "words"),
    [
        ((LEVEL,), Verdict.PASS, "all of it stays level"),
        (
            (course(MemoryVerdict.LEAK), course(MemoryVerdict.LEAK, subject="GPU 0", slope_mib_per_min=20.0)),
            Verdict.FAIL,
            "20 MiB/min in mb16_nw2_r1",
        ),
        ((course(MemoryVerdict.INCONCLUSIVE),), Verdict.INCONCLUSIVE, "Too few samples"),
        ((), Verdict.INCONCLUSIVE, "no samples of memory"),
    ],
)
def test_leak_rate_of_every_run(courses: tuple, verdict: Verdict, words: str) -> None:
    run = changed(clean_runs()[0], memory=courses)
    found = finding(Criterion(metric="leak_mib_per_min", scope="every_run", at_most=5), runs=[run])
    assert found.verdict is verdict and words in found.text
