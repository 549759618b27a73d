"""Rows, parts of train.log and launcher blocks of one run, put together."""

from __future__ import annotations

from datetime import datetime, timedelta

from seatrial.collect.original.launcher_log import Block
from seatrial.collect.original.manifest_rows import Row
from seatrial.collect.original.pairing import OriginalAttempt, pair_attempts
from seatrial.collect.original.train_log import Segment
from tests.original_campaign import FIRST_START, sweep_run, train_lines
from tests.original_campaign import OriginalAttempt as Written


def row(status: str, last_step: int | None, duration_s: int = 200) -> Row:
    cells = {"group": "g", "repeat": "1", "status": status, "exit_code": "0" if status == "success" else "1"}
    return Row(cells={**cells, "duration_sec": str(duration_s), **({} if last_step is None else {"last_step": str(last_step)})})


def segment(last_step: int, minutes: int = 0) -> Segment:
    return Segment(tuple(train_lines(sweep_run(), Written(last_step=last_step), FIRST_START + timedelta(minutes=minutes))))


def block(minutes: int = 0) -> Block:
    start: datetime = FIRST_START + timedelta(minutes=minutes)
    return Block(meta={"timestamp": start.isoformat(timespec="seconds")})


def shape(attempts: list[OriginalAttempt]) -> list[tuple[str, int | None, bool]]:
    return [
        (one.row.cells["status"] if one.row else "", one.segment.last_step if one.segment else None, one.block is not None)
        for one in attempts
    ]


def test_one_of_each() -> None:
    assert shape(pair_attempts([row("success", 300)], [segment(300)], [block()])) == [("success", 300, True)]


def test_failed_then_success_and_the_launcher_log_of_the_last() -> None:
    found = pair_attempts([row("failed", 100), row("success", 300)], [segment(100), segment(300, 10)], [block(10)])
    assert shape(found) == [("failed", 100, False), ("success", 300, True)]
    both = pair_attempts([row("failed", 100), row("success", 300)], [segment(100), segment(300, 10)], [block(), block(10)])
    assert shape(both) == [("failed", 100, True), ("success", 300, True)]


def test_an_attempt_that_died_before_train_log_has_no_lines() -> None:
    found = pair_attempts([row("failed", None), row("success", 300)], [segment(300, 10)], [block(10)])
    assert shape(found) == [("failed", None, False), ("success", 300, True)]


def test_a_row_that_repeats_the_last_step_of_the_attempt_before() -> None:
    """The driver reads the last step out of train.log, also where the newest attempt never wrote to it."""
    found = pair_attempts([row("failed", 100), row("failed", 100)], [segment(100)], [block(10)])
    assert shape(found) == [("failed", 100, False), ("failed", None, True)]


def test_interrupted_then_success() -> None:
    found = pair_attempts([row("success", 300)], [segment(150), segment(300, 10)], [block(10)])
    assert shape(found) == [("", 150, False), ("success", 300, True)]


def test_success_then_interrupted() -> None:
    found = pair_attempts([row("success", 300)], [segment(300), segment(150, 10)], [block(10)])
    assert shape(found) == [("success", 300, False), ("", 150, True)]
    before_train_log = pair_attempts([row("success", 300)], [segment(300)], [block(10)])
    assert shape(before_train_log) == [("success", 300, False), ("", None, True)]


def test_interrupted_before_anything_else() -> None:
    assert shape(pair_attempts([], [segment(50)], [block()])) == [("", 50, True)]
    assert shape(pair_attempts([], [], [block()])) == [("", None, True)]
    assert pair_attempts([], [], []) == []


def test_rows_alone() -> None:
    assert shape(pair_attempts([row("failed", 5), row("success", 300)], [], [])) == [("failed", None, False), ("success", None, False)]


def test_as_many_segments_as_rows_belong_together_whatever_the_last_step_says() -> None:
    found = pair_attempts([row("failed", 100), row("success", 250)], [segment(150), segment(300, 10)], [])
    assert shape(found) == [("failed", 150, False), ("success", 300, False)]
