"""What is said of events that were passed over or cannot be."""

from __future__ import annotations

import polars as pl
import pytest

from seatrial.collect.events.cautions import NAMED_FILES, event_cautions, files_named
from seatrial.collect.events.checks import Checked
from seatrial.collect.events.files import Passed
from seatrial.records.caution import Caution

SOUND = Checked(steps=pl.DataFrame())


def said(*passed: Passed, checked: Checked = SOUND, sizes: tuple[int, ...] = (2, 2)) -> list[Caution]:
    return list(event_cautions("mb8_r1", passed, checked, sizes, 2))


def test_nothing_is_said_of_sound_files() -> None:
    assert said() == [] and said(Passed(file="events_rank0.jsonl")) == []


@pytest.mark.parametrize(
    ("passed", "kind", "words"),
    [
        ({"problem": "is empty"}, "unreadable_file", "events_rank0.jsonl holds nothing that can be read (is empty)"),
        ({"left_out_bytes": 5}, "large_events", "Of events_rank0.jsonl only the first 512.0 MiB were read"),
        ({"torn": True}, "torn_line", "events_rank0.jsonl ends in the middle of a line"),
        ({"foreign": 1}, "foreign_lines", "In events_rank0.jsonl 1 line was passed over"),
        ({"foreign": 3}, "foreign_lines", "In events_rank0.jsonl 3 lines were passed over"),
    ],
)
def test_what_was_not_taken_of_a_file(passed: dict[str, object], kind: str, words: str) -> None:
    (caution,) = said(Passed(file="events_rank0.jsonl", **passed))  # type: ignore[arg-type]
    assert (caution.kind, caution.subject) == (kind, "mb8_r1") and words in caution.text


@pytest.mark.parametrize(
    ("counted", "kind", "number"),
    [
        ("beyond", "other_ranks", "steps"),
        ("duplicates", "duplicate_steps", "steps"),
        ("unordered", "lines_out_of_order", "steps"),
        ("misplaced", "steps_out_of_place", "steps"),
        ("bad_times", "bad_times", "steps"),
        ("bad_values", "bad_values", "values"),
    ],
)
def test_what_was_not_taken_of_the_steps(counted: str, kind: str, number: str) -> None:
    (caution,) = said(checked=Checked(steps=pl.DataFrame(), **{counted: {0: 2, 3: 1}}))
    assert (caution.kind, caution.numbers) == (kind, {number: 3})
    assert "In events_rank0.jsonl and events_rank3.jsonl 3 " in caution.text


def test_ranks_that_tell_different_numbers_of_ranks() -> None:
    (caution,) = said(sizes=(4, 2, 2))
    assert caution.kind == "other_world_size" and caution.numbers == {"taken": 2} and "(2, 4)" in caution.text


def test_everything_amiss_is_said_each_by_itself() -> None:
    both = said(
        Passed(file="a", torn=True), Passed(file="b", torn=True, foreign=1), checked=Checked(steps=pl.DataFrame(), bad_times={1: 1})
    )
    assert [caution.kind for caution in both] == ["torn_line", "foreign_lines", "bad_times"]
    assert both[0].text.startswith("a and b end in the middle")


def test_files_are_named_while_they_are_few() -> None:
    assert files_named(["a"]) == "a" and files_named(["a", "b"]) == "a and b"
    names = [str(number) for number in range(NAMED_FILES)]
    assert files_named(names) == "0, 1 and 2" and files_named([*names, "3"]) == "0 and 3 other files"
