"""Where a run stood: the rank that holds the others up, by what the stacks tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.campaign.standstill import where_it_stood
from seatrial.observe.watchdog import Alarm
from seatrial.paths import AttemptPaths
from seatrial.records.outcome import Cause, Outcome

HANGS = 'Thread 1 (idle): "MainThread"\n    hang (/home/me/train.py:24)\n    main (/home/me/train.py:60)\n'
WAITS = (
    'Thread 2 (idle): "MainThread"\n    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3047)\n'
    "    main (/home/me/train.py:61)\n"
)
LAUNCHER = (
    'Thread 3 (idle): "MainThread"\n    sleep (libc.so.6)\n    _invoke_run (/venv/site-packages/torch/distributed/elastic/api.py:923)\n'
)


def alarm(rank: int | None = None, cause: Cause = Cause.STALL) -> Alarm:
    return Alarm(cause=cause, outcome=Outcome.STALLED, text="t", action="a", rank=rank, phase="fwd")


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    attempt = AttemptPaths(tmp_path / "run" / "attempt-1")
    attempt.stacks.mkdir(parents=True)
    return attempt


def put(attempt: AttemptPaths, pid: int, text: str, rank: int | None = None, state: str = "") -> None:
    heading = f"# rank {rank} pid {pid}\n" if rank is not None else f"# pid {pid}\n"
    attempt.process_stack(pid).write_text(heading + (f"# state {state}: stopped\n" if state else "") + text)


def test_without_an_alarm_nothing_stood(attempt: AttemptPaths) -> None:
    assert where_it_stood(attempt, None).words == ""


def test_the_alarm_s_own_rank_is_the_one(attempt: AttemptPaths) -> None:
    put(attempt, 2, WAITS, rank=0)
    put(attempt, 1, HANGS, rank=1)
    stood = where_it_stood(attempt, alarm(rank=1))
    assert (stood.rank, stood.phase, stood.frame) == (1, "fwd", "train.py:24 in hang")
    assert stood.words == "; rank 1 stood at train.py:24 in hang"


def test_where_nobody_knows_the_rank_it_is_one_that_does_not_wait_for_others(attempt: AttemptPaths) -> None:
    put(attempt, 3, LAUNCHER)
    put(attempt, 2, WAITS, rank=0)
    put(attempt, 1, HANGS, rank=1)
    stood = where_it_stood(attempt, alarm())
    assert (stood.rank, stood.frame) == (1, "train.py:24 in hang")


def test_a_launcher_is_named_only_where_there_is_no_more(attempt: AttemptPaths) -> None:
    put(attempt, 3, LAUNCHER)
    assert where_it_stood(attempt, alarm()).rank is None


@pytest.mark.parametrize("cause", [Cause.STALL, Cause.START_LIMIT])
def test_a_suspended_rank_is_the_one_whatever_the_alarm_says(attempt: AttemptPaths, cause: Cause) -> None:
    put(attempt, 1, HANGS, rank=1, state="T")
    put(attempt, 2, WAITS, rank=0)
    stood = where_it_stood(attempt, alarm(rank=0, cause=cause))
    assert (stood.rank, stood.cause) == (1, Cause.SUSPENDED)
    assert stood.words == "; rank 1 is suspended (SIGSTOP), at train.py:24 in hang"


def test_a_trace_in_the_log_serves_where_there_is_no_other(attempt: AttemptPaths) -> None:
    trace = 'Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n  File "mine.py", line 3 in stuck\n'
    attempt.launcher_log.write_text("".join(f"[rank1]: {line}\n" for line in trace.splitlines()))
    stood = where_it_stood(attempt, alarm())
    assert (stood.rank, stood.frame) == (1, "mine.py:3 in stuck")
