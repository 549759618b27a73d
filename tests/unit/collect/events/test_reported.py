"""Figures that a workload told itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.events.reported import LARGEST_VALUE, read_reported
from seatrial.records.attempt import Attempt
from seatrial.records.health import ReportedFigure
from tests.unit.collect.on_disk import event, write_attempt, write_events


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return write_attempt(tmp_path)


def told(attempt: Attempt, *figures: dict[str, Any], rank: int = 0) -> Path:
    return write_events(attempt, rank, "".join(f"{event(attempt, 'figure', rank=rank, **figure)}\n" for figure in figures))


def test_no_file_and_no_event_give_no_figure(attempt: Attempt, tmp_path: Path) -> None:
    assert read_reported([], attempt) == {}
    assert read_reported([tmp_path / "events_rank0.jsonl", told(attempt)], attempt) == {}


def test_the_last_word_of_the_lowest_rank_counts(attempt: Attempt) -> None:
    first = told(attempt, {"name": "b", "value": 1}, {"name": "b", "value": 2, "unit": "ms", "n": 5})
    second = told(attempt, {"name": "b", "value": 9}, {"name": "a", "value": 3.5}, rank=1)
    assert read_reported([first, second], attempt) == {
        "a": ReportedFigure(value=3.5, file="events_rank1.jsonl"),
        "b": ReportedFigure(value=2.0, unit="ms", n=5, file="events_rank0.jsonl"),
    }


@pytest.mark.parametrize("value", [None, True, "3", [], LARGEST_VALUE, -LARGEST_VALUE, math.nan])
def test_a_value_that_cannot_be_counted_with_is_no_number(attempt: Attempt, value: object) -> None:
    assert math.isnan(read_reported([told(attempt, {"name": "a", "value": value})], attempt)["a"].value)


@pytest.mark.parametrize("name", [None, "", "two words", "a" * 101, 7])
def test_a_name_that_no_criterion_could_find_is_passed_over(attempt: Attempt, name: object) -> None:
    assert read_reported([told(attempt, {"name": name, "value": 1.0})], attempt) == {}


def test_a_unit_and_an_n_of_another_kind_are_left_out(attempt: Attempt) -> None:
    odd = told(
        attempt, {"name": "a", "value": 1, "unit": 3, "n": -1}, {"name": "b", "value": 1, "n": True}, {"name": "c", "value": 1, "n": 2.5}
    )
    assert [(one.unit, one.n) for one in read_reported([odd], attempt).values()] == [("", None)] * 3
