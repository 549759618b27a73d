"""How a rank says that its run is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.events.last_words import LAST_BYTES, is_done, was_halted
from seatrial.records.attempt import Attempt
from tests.unit.collect.on_disk import event, write_attempt, write_events


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return write_attempt(tmp_path)


def written(attempt: Attempt, *lines: str, rank: int = 0) -> Path:
    return write_events(attempt, rank, "".join(f"{line}\n" for line in lines))


def test_a_rank_is_done_when_it_says_so_itself(attempt: Attempt) -> None:
    assert not is_done(written(attempt, event(attempt, step=1)), attempt)
    assert is_done(written(attempt, event(attempt, step=1), event(attempt, "stop", steps=2)), attempt)


def test_what_others_say_does_not_count(attempt: Attempt, tmp_path: Path) -> None:
    other = write_attempt(tmp_path, number=2)
    lines = [event(other, "stop"), event(attempt, "stop", rank=1), event(attempt, "pause", name="stop"), '{"kind":"stop"']
    assert not is_done(written(attempt, *lines), attempt)


def test_a_stop_far_before_the_end_is_not_the_last_word(attempt: Attempt) -> None:
    later = [event(attempt, step=step, name="x" * 200) for step in range(LAST_BYTES // 200)]
    assert not is_done(written(attempt, event(attempt, "stop"), *later), attempt)


def test_a_file_that_is_not_there_says_nothing(attempt: Attempt, tmp_path: Path) -> None:
    assert not is_done(tmp_path / "events_rank0.jsonl", attempt)
    assert not was_halted(attempt, [tmp_path / "events_rank0.jsonl"]) and not was_halted(attempt, [])


def test_one_rank_that_was_halted_is_enough(attempt: Attempt) -> None:
    well = written(attempt, event(attempt, "stop"))
    halted = written(attempt, event(attempt, "halt", rank=1, step=4), event(attempt, "stop", rank=1), rank=1)
    assert was_halted(attempt, [well, halted]) and not was_halted(attempt, [well])


def test_the_file_of_the_watchdog_is_enough_too(attempt: Attempt) -> None:
    (Path(attempt.folder) / ".HALT").touch()
    assert was_halted(attempt, [])
