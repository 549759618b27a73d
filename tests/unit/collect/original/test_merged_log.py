"""Both logs of an attempt as one, and when its lines were written."""

from __future__ import annotations

from seatrial.collect.original.launcher_log import Block
from seatrial.collect.original.local_clock import local_s
from seatrial.collect.original.merged_log import merge_logs
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.train_log import Segment

HEADER = "offset_bytes,t,m"

STAMP = "2026-02-18 17:56:{second:02},000"
HEAD = ("=== META ===", "group=g")
STEP = f"{STAMP.format(second=20)} INFO Step 10: Loss 2.5"
LATER = f"{STAMP.format(second=23)} INFO Step 20: Loss 2.0 €"


def first_t(zone_s: float) -> float:
    found = local_s(STEP)
    assert found is not None
    return found - zone_s


def test_an_attempt_of_which_nothing_is_left() -> None:
    merged = merge_logs(OriginalAttempt(), 0.0)
    assert merged.log == "" and merged.arrivals == f"{HEADER}\n"


def test_the_launchers_lines_come_first_and_stamped_ones_have_their_times() -> None:
    attempt = OriginalAttempt(block=Block(meta={}, head=HEAD, output=("starting",)), segment=Segment((STEP, "  rest of it", LATER)))
    merged = merge_logs(attempt, 3600.0)
    assert merged.log.splitlines() == [*HEAD, "starting", STEP, "  rest of it", LATER]
    ends = [merged.log.encode().index(line.encode()) + len(line.encode()) + 1 for line in (STEP, LATER)]
    t = first_t(3600.0)
    assert merged.arrivals.splitlines() == [HEADER, f"{ends[0]},{t:.6f},0.000000", f"{ends[1]},{t + 3:.6f},3.000000"]


def test_lines_that_both_logs_hold_are_taken_once() -> None:
    told_again = "Step 10: Loss 2.5"
    validation = "Val Step 10: Loss 2.4"
    attempt = OriginalAttempt(block=Block(meta={}, output=(STEP, told_again, validation)), segment=Segment((STEP,)))
    assert merge_logs(attempt, 0.0).log.splitlines() == [validation, STEP]


def test_without_steps_of_its_own_the_trainers_log_leaves_the_launchers_its_own() -> None:
    attempt = OriginalAttempt(block=Block(meta={}, output=("Step 10: Loss 2.5",)), segment=Segment(("loading",)))
    assert merge_logs(attempt, 0.0).log.splitlines() == ["Step 10: Loss 2.5", "loading"]


def test_without_a_log_of_the_trainer_the_launchers_lines_are_timed() -> None:
    attempt = OriginalAttempt(block=Block(meta={}, head=HEAD, output=(STEP,)))
    merged = merge_logs(attempt, 0.0)
    assert merged.log.splitlines() == [*HEAD, STEP] and len(merged.arrivals.splitlines()) == 2
