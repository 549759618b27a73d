"""train.log with the lines of several attempts."""

from __future__ import annotations

from datetime import timedelta

from seatrial.collect.original.train_log import split_attempts
from tests.original_campaign import FIRST_START, OriginalAttempt, sweep_run, train_lines

RUN = sweep_run()
FAILED = list(train_lines(RUN, OriginalAttempt(last_step=100), FIRST_START))
WHOLE = list(train_lines(RUN, OriginalAttempt(), FIRST_START + timedelta(minutes=10)))


def test_steps_that_start_again_are_a_new_attempt() -> None:
    first, second = split_attempts([*FAILED, *WHOLE])
    assert list(first.lines) == FAILED and list(second.lines) == WHOLE
    assert (first.last_step, second.last_step, second.max_steps) == (100, 300, 300)
    assert second.steps == (0, 50, 100, 150, 200, 250, 300) and second.span_s == 165.0


def test_an_attempt_that_only_began_is_known_by_its_start() -> None:
    began = WHOLE[:1]
    start_local_s = (FIRST_START + timedelta(minutes=10)).replace(tzinfo=None).timestamp()
    segments = split_attempts([*FAILED, *began])
    assert len(segments) == 1
    local = split_attempts(began)[0].first_local_s
    assert local is not None and abs(local - start_local_s) < 86400
    assert [list(segment.lines) for segment in split_attempts([*FAILED, *began], [local - 15])] == [FAILED, began]


def test_lines_of_the_end_stay_with_their_attempt() -> None:
    ending = ["2026-02-18 17:57:41,000 - train - ERROR - CUDA out of memory", "Traceback (most recent call last):"]
    first, second = split_attempts([*FAILED, *ending, *WHOLE])
    assert list(first.lines) == [*FAILED, *ending] and list(second.lines) == WHOLE


def test_validation_is_no_step_and_a_start_before_all_lines_is_no_border() -> None:
    lines = [*WHOLE[:8], "2026-02-18 18:08:00,000 - train - INFO - Val Step 1/9: Loss 3.0", *WHOLE[8:]]
    assert len(split_attempts(lines)) == 1
    assert len(split_attempts(WHOLE, [0.0, 1e12])) == 1
    assert split_attempts([]) == []


def test_three_attempts_and_numbers_beyond_belief() -> None:
    third = list(train_lines(RUN, OriginalAttempt(last_step=0), FIRST_START + timedelta(minutes=30)))
    assert [segment.last_step for segment in split_attempts([*FAILED, *WHOLE, *third])] == [100, 300, 0]
    (odd,) = split_attempts([f"Step {'9' * 400}: Loss 1.0", f"TimingETA step=1 remain_steps={'9' * 400} eta_sec=1.0"])
    assert odd.last_step is None and odd.max_steps is None and odd.span_s == 0.0
