"""A script's own lines, read on from where the last read ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.core.log_header import header_text
from seatrial.core.paths import AttemptPaths
from seatrial.observe.log_progress import MAX_PARTIAL_LINE_BYTES, LogProgress, LogProgressReader
from seatrial.records.plan import WorkloadSpec
from tests.unit.observe.simulated_run import spec

NOW_T = 500.0


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    return AttemptPaths(tmp_path)


def log_of(attempt: AttemptPaths) -> LogProgressReader:
    return LogProgressReader(spec(workload=WorkloadSpec(name="script", script="a.py")), attempt, lambda: NOW_T)


def say(attempt: AttemptPaths, text: str, t: float | None = None) -> None:
    """More output; its arrival is stamped where `t` is given."""
    with open(attempt.launcher_log, "a") as log:
        log.write(text)
    if t is not None:
        with open(attempt.arrivals, "a") as arrivals:
            arrivals.write(f"{attempt.launcher_log.stat().st_size},{t},0.0\n")


def step(number: int) -> str:
    return f"iter {number}: loss 2.0, time 5.0ms\n"


def test_without_a_log_there_is_no_output(attempt: AttemptPaths) -> None:
    assert log_of(attempt).read() == LogProgress(has_output=False)


def test_what_the_harness_wrote_before_the_start_is_no_output_and_no_step(attempt: AttemptPaths) -> None:
    say(attempt, header_text({"group": step(7).strip()}, "deepspeed train.py"))
    log = log_of(attempt)
    assert log.read() == LogProgress(has_output=False)
    say(attempt, step(1), 100.0)
    assert log.read() == LogProgress(has_output=True, step=1, step_t=100.0)


def test_output_without_a_step_is_output(attempt: AttemptPaths) -> None:
    say(attempt, "loading the data\n")
    assert log_of(attempt).read() == LogProgress(has_output=True)


def test_the_newest_step_with_its_arrival_and_the_pace_between_lines(attempt: AttemptPaths) -> None:
    log = log_of(attempt)
    say(attempt, step(10), 100.0)
    assert log.read() == LogProgress(has_output=True, step=10, step_t=100.0)
    say(attempt, step(20), 105.0)
    say(attempt, step(30), 111.0)
    assert log.read() == LogProgress(has_output=True, step=30, step_t=111.0, iter_ms_p50=550.0)
    assert log.read().step == 30


def test_a_line_whose_stamp_is_not_there_yet_came_now(attempt: AttemptPaths) -> None:
    say(attempt, step(1))
    assert log_of(attempt).read().step_t == NOW_T


def test_half_a_line_waits_for_its_other_half(attempt: AttemptPaths) -> None:
    log = log_of(attempt)
    say(attempt, step(7)[:9])
    assert log.read().step is None
    say(attempt, step(7)[9:])
    assert log.read().step == 7


def test_a_line_that_never_ends_is_kept_only_in_part_and_the_next_is_read(attempt: AttemptPaths) -> None:
    log = log_of(attempt)
    say(attempt, "." * (2 * MAX_PARTIAL_LINE_BYTES))
    log.read()
    say(attempt, "\n" + step(3), 9.0)
    assert (log.read().step, log.read().step_t) == (3, 9.0)


def test_of_ranks_that_all_print_the_first_is_followed(attempt: AttemptPaths) -> None:
    say(attempt, "[rank1]: " + step(4) + "[rank0]: " + step(9))
    assert log_of(attempt).read().step == 4


def test_a_step_that_is_not_above_the_last_begins_again_and_lines_that_came_together_are_one_step(attempt: AttemptPaths) -> None:
    log = log_of(attempt)
    say(attempt, step(50), 100.0)
    say(attempt, step(10), 900.0)
    assert (log.read().step, log.read().iter_ms_p50) == (10, None)
    say(attempt, step(11) + step(12), 900.0)
    say(attempt, step(20), 901.0)
    assert log.read().iter_ms_p50 == 100.0


def test_a_log_that_somebody_emptied_is_read_from_its_start(attempt: AttemptPaths) -> None:
    log = log_of(attempt)
    say(attempt, step(100) + step(200))
    assert log.read().step == 200
    attempt.launcher_log.write_text(step(3))
    assert log.read().step == 3


def test_damaged_stamps_are_skipped(attempt: AttemptPaths) -> None:
    attempt.arrivals.write_text("offset_bytes,t,m\nx,y,z\n1000,nan,0\n7\n")
    say(attempt, step(1), 42.0)
    assert log_of(attempt).read().step_t == 42.0


def test_reads_none_gives_no_step(attempt: AttemptPaths) -> None:
    say(attempt, step(1))
    unread = spec(workload=WorkloadSpec(name="script", script="a.py", reads="none"))
    assert LogProgressReader(unread, attempt).read() == LogProgress(has_output=True)


def test_any_line_with_a_step_and_a_loss_shows_the_step(attempt: AttemptPaths) -> None:
    log = log_of(attempt)
    say(attempt, " 40%|##   | 40/100 [00:01<00:01]\n", 99.0)
    assert log.read().step == 40, "a bar of something else"
    say(attempt, "step 3 loss 3.86\n", 100.0)
    assert log.read().step == 3
    say(attempt, "step 4 loss 3.84\nval step 9 loss 4.0\n", 102.0)
    found = log.read()
    assert (found.step, found.step_t, found.iter_ms_p50) == (4, 102.0, 2000.0)
    # What a known format reads is the training.
    say(attempt, step(70), 103.0)
    say(attempt, "step 8 loss 3.2\n", 104.0)
    assert log.read().step == 70
