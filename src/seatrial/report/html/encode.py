"""The page's data as compact JSON that stays data inside a script element.

In: tables by column, and whatever else goes with them. Out: plain values for JSON, and their text. A text column is its words and a code a
row; equal values that follow one another are told once with their count; numbers keep five digits (of groups and runs nine), times their
milliseconds, and levels of axes all they have, since they are names. `cells_of` gives what a page has of a column, for whoever draws
without one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seatrial.records.charts import CHART_TABLES, TIMES, Columns
from seatrial.records.columns import AXIS
from seatrial.report.html.shown_text import plain
from seatrial.report.numbers import level

if TYPE_CHECKING:
    import polars

DIGITS = 5
FIGURE_DIGITS = 9
"""Of the tables of groups and runs, which are small: four digits of five are not always the four that a table tells."""
TIME_DECIMALS = 3
WORTH_IT = 3
"""Told once with a count takes two numbers, and more of the reader's time: worth it where it says a third or less."""
# In JSON these occur inside strings only, where an escape means the same; `<` begins every way out of a script element.
_NO_NUMBER = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ESCAPES = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script_safe(value: Any) -> str:
    """`value` as JSON that no name in it can end or comment out."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def encoded_tables(tables: dict[str, Columns]) -> dict[str, Any]:
    """Name → `{"rows": N, "columns": {NAME: COLUMN}}`, a column as `encoded_column` gives it."""
    return {name: _encoded_table(table, digits_of(name)) for name, table in tables.items() if table}


def digits_of(table: str) -> int:
    """How many digits its numbers keep."""
    return DIGITS if table in CHART_TABLES else FIGURE_DIGITS


def _encoded_table(table: Columns, digits: int) -> dict[str, Any]:
    rows = len(next(iter(table.values())))
    return {"rows": rows, "columns": {plain(name): encoded_column(name, values, digits) for name, values in table.items()}}


def encoded_column(name: str, values: Sequence[Any], digits: int = DIGITS) -> dict[str, Any]:
    """`{"words": […], …}` where it holds text or yes and no; then `values`, or `runs`: value, count, value, count, …"""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {bool}:
        return {"words": [False, True], **_packed(_numbers(name, values, digits))}
    # Yes and no among numbers would be 1 and 0 there: such a column is text as well.
    if kinds & {str, bool}:
        codes, words = _coded(values)
        return {"words": words, **_packed(codes)}
    return _packed(_numbers(name, values, digits))


def cells_of(name: str, values: Sequence[Any], digits: int = DIGITS) -> list[Any]:
    """What decode.js makes of the column: a cell a row."""
    column = encoded_column(name, values, digits)
    pairs = column.get("runs", ())
    unpacked = (
        column["values"] if "values" in column else [value for at in range(0, len(pairs), 2) for value in [pairs[at]] * pairs[at + 1]]
    )
    words = column.get("words")
    return unpacked if words is None else [None if code is None else words[code] for code in unpacked]


def _coded(values: Sequence[Any]) -> tuple[polars.Series, list[str]]:
    """A code a row and the word of each; what is no text is its text, and nothing stays nothing."""
    import polars as pl

    texts = [None if value is None else value if type(value) is str else level(value) for value in values]
    code_of: dict[str | None, int | None] = {text: at for at, text in enumerate(text for text in dict.fromkeys(texts) if text is not None)}
    words = [plain(text) for text in code_of if text is not None]
    code_of[None] = None
    return pl.Series([code_of[text] for text in texts], dtype=pl.Int64), words


def _numbers(name: str, values: Sequence[Any], digits: int) -> polars.Series:
    import polars as pl

    series = pl.Series(values, strict=False)
    if not series.dtype.is_float():
        return series.cast(pl.Int64, strict=False)
    rounded = series if name.startswith(AXIS) else series.round(TIME_DECIMALS) if name in TIMES else series.round_sig_figs(digits)
    # 4.0 is written as 4 where the whole column can be.
    return rounded.cast(pl.Int64) if _is_whole(rounded) else rounded


def _is_whole(series: polars.Series) -> bool:
    # `max` passes over a number that is none, and `==` takes it for itself.
    if not series.is_finite().all():
        return False
    largest = series.abs().max()
    return isinstance(largest, float) and largest < 2**53 and bool((series == series.round(0)).all())


def _cells(series: polars.Series) -> list[Any]:
    """JSON has no number that is none: such a one is its word."""
    cells = series.to_list()
    if not series.dtype.is_float() or series.is_finite().all():
        return cells
    return [value if value is None or math.isfinite(value) else _NO_NUMBER[str(value)] for value in cells]


def _packed(series: polars.Series) -> dict[str, Any]:
    stretches = series.rle()
    if WORTH_IT * len(stretches) > len(series):
        return {"values": _cells(series)}
    both = zip(_cells(stretches.struct.field("value")), stretches.struct.field("len").to_list(), strict=True)
    return {"runs": [item for pair in both for item in pair]}
