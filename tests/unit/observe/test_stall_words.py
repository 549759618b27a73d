"""A stall in words: what, for how long, against which limit, who stands where, and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seatrial.observe.progress import BETWEEN_STEPS, Progress, RankStanding
from seatrial.observe.stall import QUIET_KEY, STALL_KEY, START_KEY, Stall
from seatrial.observe.stall_words import BETWEEN, COLLECTIVE, LOADER, SUSPENDED, action_of, text_of
from seatrial.units import format_duration

AT_5 = Progress(step=5, total=100)
NOTHING_TOLD = Progress()


def at(rank: int, step: int | None, phase: str = "bwd") -> RankStanding:
    return RankStanding(rank=rank, step=step, phase=phase)


STALL = Stall(still_s=90.0, limit_s=60.0, key=STALL_KEY, culprit=at(1, 5))


def test_one_rank_alone() -> None:
    assert text_of(STALL, AT_5) == "no step for 90 s (limit 60 s: limits.stall); rank 1 stands at step 5 in 'bwd'"


def test_the_pace_before_and_a_longer_limit_at_the_start() -> None:
    slow = replace(STALL, iter_ms_p50=1500.0, key=START_KEY)
    pace = format_duration(1.5)
    assert f"(limit 60 s: limits.start_s, the larger of it and limits.stall; steps took {pace} before)" in text_of(slow, AT_5)


@pytest.mark.parametrize(
    ("others", "moving", "told"),
    [
        ((at(0, 5),), (), "all 2 ranks stand at step 5 in 'bwd'"),
        ((at(0, 5, "fwd"), at(2, 5, "step")), (), "rank 1 stands at step 5 in 'bwd', the others at the same step in 'fwd' or 'step'"),
        ((at(0, 6),), (), "rank 1 stands at step 5 in 'bwd', the other at 6"),
        ((at(0, 6), at(2, 8)), (), "rank 1 stands at step 5 in 'bwd', the others at 6 to 8"),
        ((at(0, 6),), (0,), "rank 1 stands at step 5 in 'bwd', the other goes on at 6"),
        ((at(0, 6), at(2, 8)), (0, 2), "rank 1 stands at step 5 in 'bwd', the others go on at 6 to 8"),
        ((at(0, None),), (), "rank 1 stands at step 5 in 'bwd', the other before the first step"),
    ],
)
def test_where_the_others_stand(others: tuple[RankStanding, ...], moving: tuple[int, ...], told: str) -> None:
    assert text_of(replace(STALL, others=others, moving=frozenset(moving)), AT_5).endswith(f"; {told}")


def test_a_rank_that_is_not_heard_of() -> None:
    silent = replace(STALL, silent_s=700.0, others=(at(0, 5),))
    assert "rank 1 has not been heard of for " in text_of(silent, AT_5) and "and was at step 5 in 'bwd' then" in text_of(silent, AT_5)
    assert "700 s" not in text_of(silent, AT_5), "beyond ten minutes seconds are hard to read"
    assert SUSPENDED in action_of(silent)


def test_a_rank_that_was_started_anew_and_one_at_its_end() -> None:
    assert text_of(replace(STALL, culprit=at(0, None)), AT_5).startswith("no step for 90 s since a rank was started anew")
    assert text_of(replace(STALL, culprit=at(0, 99)), Progress(step=99, total=100)).startswith("all 100 steps are taken, but for 90 s")


def test_a_script_without_the_probe() -> None:
    mute = replace(STALL, culprit=None)
    assert text_of(mute, NOTHING_TOLD) == "no output for 90 s (limit 60 s: limits.stall)"
    assert text_of(mute, AT_5) == "no step and no output for 90 s (limit 60 s: limits.stall); the last it told was step 5"
    assert "--rank" not in action_of(mute)


def test_ranks_that_are_done() -> None:
    assert text_of(replace(STALL, num_done=1), AT_5).endswith("; 1 rank is done")
    assert text_of(replace(STALL, num_done=3), AT_5).endswith("; 3 ranks are done")
    over = text_of(replace(STALL, culprit=None, num_done=4), AT_5)
    assert over == "every rank is done, but for 90 s the run has neither ended nor printed anything (limit 60 s: limits.stall)"


@pytest.mark.parametrize(
    ("phase", "key", "cause"),
    [
        *(("data_wait", STALL_KEY, LOADER), (BETWEEN_STEPS, STALL_KEY, BETWEEN), ("bwd", STALL_KEY, COLLECTIVE)),
        *(("data_wait", QUIET_KEY, COLLECTIVE), ("a phase of the user's", STALL_KEY, COLLECTIVE)),
    ],
)
def test_the_usual_causes_and_the_key_to_raise(phase: str, key: str, cause: str) -> None:
    action = action_of(replace(STALL, culprit=at(1, 5, phase), key=key))
    raised = "limits.stall.floor_s" if key == STALL_KEY else key
    assert cause in action and action.endswith(f"raise {raised} where this is no fault") and "seatrial logs RUN --rank 1" in action
