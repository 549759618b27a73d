"""Events of one kind, looked for in a file that hardly has any."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.events import rare
from seatrial.collect.events.rare import events_of_kind
from seatrial.records.attempt import Attempt
from tests.unit.collect.on_disk import event, write_attempt, write_events


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return write_attempt(tmp_path)


def values(path: Path, attempt: Attempt) -> list[object]:
    return [one["value"] for one in events_of_kind("figure", path, attempt)]


def test_those_of_the_kind_in_their_order(attempt: Attempt) -> None:
    lines = [event(attempt, "figure", value=1), event(attempt, step=1), event(attempt, "figure", value=2)]
    assert values(write_events(attempt, 0, "\n".join(lines)), attempt) == [1, 2], "the last line has no end and is one all the same"


def test_lines_of_others_and_lines_that_only_hold_the_word_are_passed_over(attempt: Attempt, tmp_path: Path) -> None:
    other = write_attempt(tmp_path, number=2)
    lines = [
        event(attempt, "pause", name="figure", step=1),
        event(other, "figure", value=3),
        event(attempt, "figure", rank=1, value=4),
        '{"kind": "figure", "torn',
        event(attempt, "figure", value=5),
    ]
    assert values(write_events(attempt, 0, "".join(f"{line}\n" for line in lines)), attempt) == [5]


def test_an_event_that_a_block_would_cut_in_two_is_whole(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rare, "BLOCK_BYTES", 50)
    path = write_events(attempt, 0, "".join(f"{event(attempt, 'figure', value=value)}\n" for value in range(5)))
    assert values(path, attempt) == [0, 1, 2, 3, 4]


def test_a_file_that_cannot_be_read_holds_none(attempt: Attempt, tmp_path: Path) -> None:
    assert values(tmp_path / "events_rank0.jsonl", attempt) == []
    (tmp_path / "events_rank0.jsonl").mkdir()
    assert values(tmp_path / "events_rank0.jsonl", attempt) == []
