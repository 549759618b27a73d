"""Criteria that count runs: what is known counts, what cannot be said is no pass."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.judge.counts import count_of_campaign, count_of_group, told_count
from seatrial.judge.facts import Facts, sort_runs
from seatrial.judge.reading import Reading
from seatrial.records.health import MemoryVerdict, StragglerVerdict
from seatrial.records.measure import RunHealth
from seatrial.records.outcome import Cause, Fault, Outcome
from seatrial.records.results import MeasuredRun
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


def facts(*runs: MeasuredRun) -> Facts:
    return sort_runs(runs, (), factory.ranking(), ())


def test_a_count_spans_from_what_is_known_to_what_may_be() -> None:
    first, second, third, _ = level_runs()
    leaking, unsaid = changed(first, memory=(course(MemoryVerdict.LEAK),)), changed(second, memory=(course(MemoryVerdict.INCONCLUSIVE),))
    (found,) = count_of_campaign("leaking_runs", facts(leaking, unsaid, third))
    assert (found.value, found.low, found.high, found.n, found.unit) == (1, 1, 2, 3, "runs")
    assert (found.file, found.window) == ("per_run_metrics.csv", "the window of each run")
    assert found.unsettled == "mb16_nw2_r2: process tree: Too few samples: 12 in 20 s; run at least 5 minutes"
    (failed,) = count_of_campaign("failed_runs", facts(first))
    assert (failed.file, failed.window) == ("run_manifest.tsv", "whole runs")
    assert count_of_campaign("failed_runs", facts()) == []


def test_a_group_without_runs_and_one_with() -> None:
    group = factory.summary("mb16_nw2")
    assert count_of_group("failed_runs", group, facts()).missing == "no run of mb16_nw2 has ended; run the plan"
    run = clean_runs()[0]
    own = dataclasses.replace(group, group_key=run.attempt.spec.key)
    found = count_of_group("failed_runs", own, facts(*clean_runs()))
    assert (found.subject, found.value, found.n) == ("mb16_nw2", 0, 2)
    assert told_count("failed_runs", found) == "0 of 2 runs failed in mb16_nw2"


def test_reasons_that_differ_only_in_numbers_are_told_once_with_their_runs() -> None:
    unsaid = [course(MemoryVerdict.INCONCLUSIVE, reason=f"Too few samples: {count}.") for count in (3, 4)]
    runs = [changed(run, memory=(one,)) for run, one in zip(clean_runs(), unsaid, strict=False)]
    (found,) = count_of_campaign("leaking_runs", facts(*runs))
    assert found.unsettled == "mb16_nw2_r1, mb16_nw2_r2: process tree: Too few samples: 3"


def test_what_some_runs_say_beside_is_told_with_their_number() -> None:
    alone = changed(clean_runs()[0], world_size=1)
    together = changed(clean_runs()[1], straggler=straggler(StragglerVerdict.NONE))
    (all_alone,) = count_of_campaign("straggling_runs", facts(alone))
    assert all_alone.detail == "one rank only: nothing to hold up"
    (some,) = count_of_campaign("straggling_runs", facts(alone, together))
    assert some.detail == "1 run: one rank only: nothing to hold up"


@pytest.mark.parametrize(
    ("metric", "value", "words"),
    [
        ("failed_runs", 2, "2 of 7 runs failed"),
        ("halted_runs", 1, "1 of 7 runs halted"),
        ("leaking_runs", 1, "1 of 7 runs leaks"),
        ("leaking_runs", 2, "2 of 7 runs leak"),
        ("straggling_runs", 1, "1 of 7 runs is held up by one rank"),
        ("straggling_runs", 0, "0 of 7 runs are held up by one rank"),
    ],
)
def test_counts_in_words(metric: str, value: int, words: str) -> None:
    assert told_count(metric, Reading(subject="campaign", value=value, n=7)) == words
    assert told_count(metric, Reading(subject="mb8", value=value, n=7, detail="a, b")) == f"{words} in mb8: a, b"


def test_what_a_failed_run_is_counted_by_is_its_outcome() -> None:
    (found,) = count_of_campaign("failed_runs", facts(factory.oom("mb8_nw2", 2)))
    (evidence,) = found.further
    assert (evidence.subject, evidence.name, evidence.value, evidence.window, evidence.n) == (
        "mb8_nw2_r2",
        "cause",
        "cuda_oom",
        "whole run",
        1,
    )
    assert evidence.file == "mb8_nw2_r2/attempt-1/outcome.json"


def test_a_run_that_halted_is_counted_by_its_outcome() -> None:
    (found,) = count_of_campaign("halted_runs", facts(changed(clean_runs()[0], health=RunHealth(ranks=2, halted=True))))
    (evidence,) = found.further
    assert (evidence.name, evidence.value, evidence.file) == ("halted", True, "mb16_nw2_r1/attempt-1/outcome.json")
