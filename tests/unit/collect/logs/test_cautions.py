"""What is said of times that were read from a script's own lines."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.collect.logs.arrivals import Arrivals
from seatrial.collect.logs.bars import TrainingBar
from seatrial.collect.logs.cautions import log_cautions, reading_cautions, source_cautions, unplaced_losses
from seatrial.collect.logs.readings import Reading
from seatrial.collect.logs.source import LARGEST_LOG_BYTES, LogText
from seatrial.collect.logs.step_numbers import Numbered

Row = dict[str, float | int | None]


def row(iter_ms: float | None = 50.0, span: int = 1, m: float | None = 1.0) -> Row:
    return {"iter_ms": iter_ms, "span": span, "m": m}


def kinds(rows: list[Row], **how: Any) -> list[str]:
    return [caution.kind for caution in log_cautions(rows, "mb8_r1", **how)]


def test_nothing_is_said_of_every_step_with_its_time() -> None:
    assert kinds([row(None), row(), row()]) == []
    assert kinds([row(None)]) == [], "the first line has no time, and that is as it should be"


def test_output_that_came_together_is_buffered() -> None:
    assert kinds([row(None), row(None), row(None), row()]) == ["buffered_output"]
    assert kinds([row(None), row(None), row()]) == [], "half of them is not most"
    assert kinds([row(None), row(None), row(None), row()], restarts=1) == [], "the first line of an epoch has no time either"


def test_without_arrivals_that_alone_is_said_of_the_times() -> None:
    assert kinds([row(None, m=None), row(None, m=None), row(None, m=None)]) == ["times_from_text"]


def test_steps_between_lines_and_pauses_are_said() -> None:
    (between,) = log_cautions([row(None), row(span=10), row(span=30)], "mb8_r1")
    assert between.kind == "steps_between_lines" and between.numbers == {"median_span": 30, "longest_span": 30}
    assert kinds([row(None), row()], pauses_count=True) == ["pauses_counted"]


@pytest.mark.parametrize(("count", "words"), [(1, "1 line tells a loss but"), (4, "4 lines tell a loss but")])
def test_losses_that_have_no_steps(count: int, words: str) -> None:
    (caution,) = unplaced_losses(count, "mb8_r1")
    assert caution.text.startswith(words) and caution.numbers == {"lines": count}
    assert list(unplaced_losses(0, "mb8_r1")) == []


def test_what_of_the_output_itself_could_not_be_read() -> None:
    assert list(source_cautions(LogText(lines=[], arrivals=Arrivals()), "mb8_r1")) == []
    text = LogText(lines=[], arrivals=Arrivals(passed_over=1, problem="Is a directory"), left_out_bytes=LARGEST_LOG_BYTES, problem="gone")
    log, arrivals, rows, large = source_cautions(text, "mb8_r1")
    assert (
        "launcher.log could not be read (gone)" in log.text and "launcher_arrivals.csv could not be read (Is a directory)" in arrivals.text
    )
    assert "1 row was passed over" in rows.text and "launcher.log has 128.0 MiB" in large.text


def test_what_the_numbers_of_the_lines_do_not_tell() -> None:
    assert list(reading_cautions(Reading(name="x", numbered=Numbered()), "mb8_r1")) == []
    numbered = Numbered(lines=50, passed_over=6, grown_only=True)
    bar = TrainingBar(told=[], total=None, left_out=(10, None))
    bars, late = reading_cautions(Reading(name="x", numbered=numbered, bar=bar), "mb8_r1")
    assert bars.numbers == {"read": "?", "left_out": "10, ?"}
    assert late.text.startswith("6 lines with an earlier step number were") and late.text.endswith("if there are any, are not read.")
    (single,) = reading_cautions(Reading(name="x", numbered=Numbered(lines=50, passed_over=1)), "mb8_r1")
    assert single.text.startswith("1 line with an earlier step number was") and "growing numbers" not in single.text
