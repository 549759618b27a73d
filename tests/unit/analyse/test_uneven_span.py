"""The measured window: which rows lie in it, and its words."""

from __future__ import annotations

import polars as pl
import pytest

from seatrial.analyse.uneven_span import Span
from seatrial.records.measure import Window

TABLE = pl.DataFrame({"epoch_sec": [0.0, 1.0, 2.0, 3.0, 4.0]})


@pytest.mark.parametrize(
    ("first_t", "last_t", "rows"),
    [
        (None, None, [0.0, 1.0, 2.0, 3.0, 4.0]),
        (1.0, 3.0, [1.0, 2.0, 3.0]),
        (0.5, 2.5, [1.0, 2.0]),
        (2.0, None, [2.0, 3.0, 4.0]),
        (None, 1.0, [0.0, 1.0]),
        (3.0, 1.0, []),
        (9.0, 10.0, []),
        (-2.0, -1.0, []),
    ],
)
def test_rows_from_the_first_to_the_last_moment_both_inside(first_t: float | None, last_t: float | None, rows: list[float]) -> None:
    assert Span(first_t=first_t, last_t=last_t).rows(TABLE)["epoch_sec"].to_list() == rows


def test_words() -> None:
    assert Span().words == "the whole run"
    assert Span(window=Window(first_step=20, last_step=399, n=380, warmup_steps=20)).words == "steps 20 to 399"
