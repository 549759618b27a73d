"""One value that a criterion looks at, and how it stands to its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.judge import reading as under_test
from seatrial.judge.reading import Reading, Standing, listed, missing
from seatrial.records.measure import Window
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.verdict import Criterion
from tests.unit.judge.campaigns import changed, clean_runs
from tests.unit.report import factory


def standing(value: object = 5.0, *, at_least: float | None = None, at_most: float | None = None, **changes: Any) -> Standing:
    criterion = Criterion(metric="m", scope="campaign", at_least=at_least, at_most=at_most)
    return Reading(subject="a", value=value, **changes).standing(criterion, needs_bound=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "at_least", "at_most", "how"),
    [
        (5.0, 6.0, 5.0, None, Standing.HOLDS),
        (4.9, 6.0, 5.0, None, Standing.OPEN),
        (3.0, 5.0, 5.0, None, Standing.OPEN),
        (3.0, 4.9, 5.0, None, Standing.BROKEN),
        (5.0, 6.0, None, 6.0, Standing.HOLDS),
        (5.0, 6.1, None, 6.0, Standing.OPEN),
        (6.0, 7.0, None, 6.0, Standing.OPEN),
        (6.1, 7.0, None, 6.0, Standing.BROKEN),
        (5.0, 6.0, 5.0, 6.0, Standing.HOLDS),
        (None, None, 5.0, 5.0, Standing.HOLDS),
        (None, None, 5.1, None, Standing.BROKEN),
        (None, 9.0, 5.0, None, Standing.HOLDS),
        (1.0, None, 5.0, None, Standing.OPEN),
    ],
)
def test_the_whole_span_must_hold_or_be_broken(
    low: float | None, high: float | None, at_least: float | None, at_most: float | None, how: Standing
) -> None:
    assert standing(low=low, high=high, at_least=at_least, at_most=at_most) is how


def test_what_may_still_change_is_never_a_pass_but_may_be_broken() -> None:
    assert standing(at_least=1, unsettled="runs are missing") is Standing.OPEN
    assert standing(at_least=9, unsettled="runs are missing") is Standing.BROKEN
    assert standing(at_least=1, broken="its loss is worse") is Standing.BROKEN
    assert standing(None, at_least=1, missing="nothing was told", broken="so") is Standing.OPEN


@pytest.mark.parametrize(
    ("value", "unsettled", "how"),
    [(True, "", Standing.HOLDS), (False, "", Standing.BROKEN), (True, "why", Standing.OPEN), (False, "why", Standing.BROKEN)],
)
def test_a_truth_needs_no_bound(value: bool, unsettled: str, how: Standing) -> None:
    criterion = Criterion(metric="loss_falls", scope="every_run")
    assert Reading(subject="a", value=value, unsettled=unsettled).standing(criterion, needs_bound=False) is how


def test_evidence_of_a_value_has_the_ends_of_its_interval() -> None:
    made = Reading(subject="a", value=5.0, unit="%", file="f.csv", window="w", n=3, low=4.0, high=6.0, confidence=0.975)
    assert [(one.name, one.value, one.unit, one.file, one.window, one.n) for one in made.evidence()] == [
        ("", 5.0, "%", "f.csv", "w", 3),
        ("lower end of the 97.5 % interval", 4.0, "%", "f.csv", "w", 3),
        ("upper end of the 97.5 % interval", 6.0, "%", "f.csv", "w", 3),
    ]
    assert len(Reading(subject="a", value=5, low=4, high=6).evidence()) == 1, "the ends of a count are no interval's"


def test_what_is_missing_has_a_place_too() -> None:
    (gap,) = missing("a", "why", "f.csv").evidence()
    assert (gap.subject, gap.value, gap.file, gap.window, gap.n) == ("a", None, "f.csv", "no value", 0)
    assert missing("a", "why").evidence() == ()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (1, "r0"), (5, "r0, r1, r2, r3, r4"), (6, "r0, r1, r2, r3, r4 and 1 more"), (9, "r0, r1, r2, r3, r4 and 4 more")],
)
def test_the_first_few(count: int, text: str) -> None:
    assert listed([f"r{at}" for at in range(count)]) == text


def test_words_of_counts_windows_and_intervals() -> None:
    assert under_test.shape("took 1,200.5 ms of 3 steps") == under_test.shape("took 7 ms of 40 steps") == "took # ms of # steps"
    assert under_test.runs_text(2) == "2 runs"
    assert (under_test.interval_text(), under_test.interval_text(0.995)) == ("95 % interval", "99.5 % interval")
    assert under_test.window_text(None) == "whole run"
    assert under_test.window_text(Window(first_step=2, last_step=9, n=8, warmup_steps=2)) == "steps 2–9"
    assert under_test.debug_text(("A=1", "B=2")) == ["measured with A=1, B=2 on"] and under_test.debug_text(()) == []


def test_what_a_group_lost() -> None:
    group = factory.summary("mb8_nw2", counted=2, failed=1, infrastructure_failures=("mb8_nw2_r4 (io_error)",), set_aside_runs=1)
    assert under_test.failures_text(group) == ["1 of 5 runs failed", "the platform failed 1 of 5 runs"]
    assert under_test.failures_text(factory.summary("mb16_nw2")) == []


def test_a_run_in_words_and_files() -> None:
    run = clean_runs()[0]
    assert under_test.run_window(run) == ("steps 20–199", 178)
    assert under_test.run_window(changed(run, window=None)) == ("whole run", None)
    assert under_test.how_it_ended(factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.IO_ERROR)) == "failed: io_error"
    assert under_test.how_it_ended(factory.measured("mb8_nw2", 1, how=None)) == "not over"
    assert under_test.attempt_file(run, "/anywhere/launcher.log") == "mb16_nw2_r1/attempt-1/launcher.log"
    assert under_test.outcome_file(run) == "mb16_nw2_r1/attempt-1/outcome.json"
