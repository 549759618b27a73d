"""The page's data as compact JSON that stays data inside a script element.

In: tables by column, and whatever else goes with them. Out: plain values for JSON, and their text. A text column is its words and a code a
row; equal values that follow one another are told once with their count; numbers keep five digits, times their milliseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seatrial.records.charts import Columns
from seatrial.report.html.shown_text import plain

if TYPE_CHECKING:
    import polars

DIGITS = 5
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
    return {name: _encoded_table(table) for name, table in tables.items() if table}


def _encoded_table(table: Columns) -> dict[str, Any]:
    rows = len(next(iter(table.values())))
    return {"rows": rows, "columns": {plain(name): encoded_column(name, values) for name, values in table.items()}}


def encoded_column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """`{"words": […], …}` where it holds text or yes and no; then `values`, or `runs`: value, count, value, count, …"""
    kinds = set(map(type, values))
    if str in kinds:
        codes, words = _coded(values)
        return {"words": words, **_packed(codes)}
    if bool in kinds:
        return {"words": [False, True], **_packed(_numbers(name, values))}
    return _packed(_numbers(name, values))


def _coded(values: Sequence[Any]) -> tuple[polars.Series, list[str]]:
    """A code a row and the word of each; what is no text is its text, and nothing stays nothing."""
    import polars as pl

    texts = [None if value is None else value if type(value) is str else _as_text(value) for value in values]
    code_of: dict[str | None, int | None] = {text: at for at, text in enumerate(text for text in dict.fromkeys(texts) if text is not None)}
    words = [plain(text) for text in code_of if text is not None]
    code_of[None] = None
    return pl.Series([code_of[text] for text in texts], dtype=pl.Int64), words


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(name: str, values: Sequence[Any]) -> polars.Series:
    import polars as pl

    series = pl.Series(values, strict=False)
    if not series.dtype.is_float():
        return series.cast(pl.Int64, strict=False)
    rounded = series.round(TIME_DECIMALS) if name.endswith("_s") else series.round_sig_figs(DIGITS)
    # 4.0 is written as 4 where the whole column can be.
    return rounded.cast(pl.Int64) if _is_whole(rounded) else rounded


def _is_whole(series: polars.Series) -> bool:
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
