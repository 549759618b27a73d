"""Limits, judged without a clock."""

from __future__ import annotations

import pytest

from seatrial.observe.progress import Progress, RankStanding
from seatrial.observe.stall import Stall
from seatrial.observe.watchdog import GIB, alarm
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.run_spec import LimitsSpec

SILENT, STEPPING = Progress(), Progress(step=3, total=10, alive=True)
HEAVY = Progress(step=3, alive=True, memory_bytes=61 * GIB)
WORDY = Progress(step=3, total=10, alive=True, written_bytes=20 * GIB + GIB // 2, largest_file="launcher.log", largest_bytes=19 * GIB)
STALL = Stall(still_s=204.0, limit_s=180.0, key="limits.stall", culprit=RankStanding(rank=3, step=3, phase="bwd"), iter_ms_p50=1200.0)


@pytest.mark.parametrize(
    ("progress", "elapsed_s", "limits", "cause"),
    [
        (SILENT, 9.0, LimitsSpec(start_s=10), None),
        (SILENT, 11.0, LimitsSpec(start_s=10), Cause.START_LIMIT),
        (STEPPING, 11.0, LimitsSpec(start_s=10), None),
        (STEPPING, 11.0, LimitsSpec(start_s=None, run_s=10), Cause.RUN_LIMIT),
        (SILENT, 1e9, LimitsSpec(start_s=None, run_s=None), None),
        (SILENT, 30.0, LimitsSpec(start_s=10, run_s=20), Cause.RUN_LIMIT),
        (HEAVY, 11.0, LimitsSpec(), None),
        (HEAVY, 11.0, LimitsSpec(memory_gib=61), None),
        (HEAVY, 11.0, LimitsSpec(memory_gib=60.5), Cause.MEMORY_LIMIT),
        (STEPPING, 11.0, LimitsSpec(memory_gib=0.001), None),
        (WORDY, 11.0, LimitsSpec(), Cause.DISK_LIMIT),
        (WORDY, 11.0, LimitsSpec(disk_gib=21), None),
        (WORDY, 11.0, LimitsSpec(disk_gib=None), None),
    ],
)
def test_alarm(progress: Progress, elapsed_s: float, limits: LimitsSpec, cause: Cause | None) -> None:
    raised = alarm(progress, elapsed_s, limits)
    assert (raised.cause if raised else None) == cause
    assert raised is None or raised.text


def test_a_run_out_of_bounds_has_failed_and_one_out_of_time_timed_out() -> None:
    assert [raised.outcome for raised in (alarm(HEAVY, 1, LimitsSpec(memory_gib=1)), alarm(WORDY, 1, LimitsSpec())) if raised] == [
        Outcome.FAILED,
        Outcome.FAILED,
    ]
    late = alarm(STEPPING, 11.0, LimitsSpec(run_s=10))
    assert late is not None
    assert late.outcome is Outcome.TIMEOUT


def test_memory_and_disk_are_told_with_their_numbers() -> None:
    heavy, wordy = alarm(HEAVY, 1, LimitsSpec(memory_gib=60.5)), alarm(WORDY, 1, LimitsSpec())
    assert heavy is not None
    assert heavy.text == "its processes hold 61.0 GiB of memory (limit 60.5 GiB: limits.memory_gib; rss_kib, the newest sample), at step 3"
    assert wordy is not None
    assert wordy.text == "its logs and events take 20.5 GiB, 19.0 GiB of it launcher.log (limit 20.0 GiB: limits.disk_gib), at step 3 of 10"


def test_a_stall_is_told_with_rank_and_phase() -> None:
    raised = alarm(STEPPING, 300.0, LimitsSpec(), STALL)
    assert raised is not None
    assert (raised.cause, raised.outcome, raised.rank, raised.phase) == (Cause.STALL, Outcome.STALLED, 3, "bwd")
    assert raised.text == "no step for 204 s (limit 180 s: limits.stall; steps took 1.2 s before); rank 3 stands at step 3 in 'bwd'"
    assert raised.action == (
        "read stacks/ in the attempt's folder for where each rank stands, and its last lines (seatrial logs RUN --rank 3); usual causes: "
        "a collective that not every rank reaches, a network or GPU that does not answer, a rank with more batches than another; "
        "raise limits.stall.floor_s where this is no fault"
    )


def test_a_passed_limit_of_time_is_told_before_a_stall() -> None:
    raised = alarm(STEPPING, 300.0, LimitsSpec(run_s=250), STALL)
    assert raised is not None
    assert raised.cause is Cause.RUN_LIMIT


@pytest.mark.parametrize(
    ("phases", "text", "rank"),
    [
        ({0: None, 1: "startup:model"}, "no first step of rank 1 within 10.0 s (limits.start_s); rank 1 is in 'startup:model'", 1),
        ({0: "fwd", 1: "fwd", 2: "start"}, "no first step of 3 ranks within 10.0 s (limits.start_s); rank 2 is in 'start'", 2),
    ],
)
def test_who_has_not_begun_is_named(phases: dict[int, str | None], text: str, rank: int) -> None:
    standings = tuple(RankStanding(rank=rank, step=0 if phase is None else None, phase=phase or "fwd") for rank, phase in phases.items())
    raised = alarm(Progress(standings=standings), 11.0, LimitsSpec(start_s=10))
    assert raised is not None
    assert (raised.text, raised.rank, raised.outcome) == (text, rank, Outcome.TIMEOUT)


def test_at_the_start_a_rank_that_never_came_is_the_one() -> None:
    standings = tuple(RankStanding(rank=rank, step=None, phase="startup:process_group") for rank in (0, 2))
    raised = alarm(Progress(standings=standings, num_ranks=3), 11.0, LimitsSpec(start_s=10))
    assert raised is not None
    assert raised.text == "no first step within 10.0 s (limits.start_s): 2 of 3 ranks came to their probe, rank 1 did not"
    assert raised.rank == 1


def test_at_the_start_a_rank_that_fell_silent_is_the_one() -> None:
    standings = tuple(RankStanding(rank=rank, step=None, phase=phase) for rank, phase in ((0, "bwd"), (1, "fwd"), (2, "fwd")))
    raised = alarm(Progress(standings=standings, num_ranks=3), 11.0, LimitsSpec(start_s=10), None, frozenset({2}))
    assert raised is not None and raised.rank == 2
