"""What the page is drawn from, read from disk: summary.json and the tables of a campaign, nothing else.

In: a campaign's folder. Out: `PageData`. Anybody who reads the same files can draw the same charts, or others. Cells are read as text and
then taken for what their column holds, so that one that is damaged is an empty cell; a table that is damaged is an absent one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.charts import CHART_TABLES, FLAGS, MARKED, TEXTS, WHOLE, WHOSE, Columns
from seatrial.report.html.summary_tables import groups_table, runs_table

if TYPE_CHECKING:
    import polars

LARGEST_TABLE_BYTES = 256 << 20
"""A page is ten megabytes at most; nothing that the project writes comes near this."""
YES = ("true", "1", "yes")


@dataclass(frozen=True, kw_only=True)
class PageData:
    """One campaign as the page has it."""

    summary: dict[str, Any]
    """summary.json."""
    tables: dict[str, Columns] = field(default_factory=dict)
    """`groups` (a row a group: its place, figure, interval, note, axes, window, n), `runs` (a row a current run: figure, outcome, window,
    n), and the tables of records.charts with their first columns; one without rows is not there."""


def read_page_data(paths: CampaignPaths) -> PageData:
    """What is there; a campaign without a summary has an empty one."""
    read = files.read_json(paths.summary_json)
    summary = read if isinstance(read, dict) else {}
    tables = {"groups": groups_table(summary), "runs": runs_table(summary)}
    tables |= {name: read_table(paths.chart_table(name), (*WHOSE, *columns)) for name, columns in CHART_TABLES.items()}
    return PageData(summary=summary, tables={name: table for name, table in tables.items() if table})


def read_table(path: Path, columns: tuple[str, ...]) -> Columns:
    """A table of the campaign by column; {} where it is not there, holds no row or cannot be read."""
    import polars as pl

    try:
        with files.open_file(path) as source:
            if os.fstat(source.fileno()).st_size > LARGEST_TABLE_BYTES:
                return {}
            text = source.read()
        frame = pl.read_csv(text, infer_schema=False, encoding="utf8-lossy", truncate_ragged_lines=True)
    except (OSError, pl.exceptions.PolarsError):
        return {}
    if frame.is_empty() or not set(columns) <= set(frame.columns):
        return {}
    typed = frame.select(_typed(pl.col(name), name) for name in columns).filter(pl.col(WHOSE[0]) != "")
    return {} if typed.is_empty() else {str(name): values for name, values in typed.to_dict(as_series=False).items()}


def _typed(column: polars.Expr, name: str) -> polars.Expr:
    import polars as pl

    if name in TEXTS:
        return column.fill_null("")
    if name in FLAGS:
        return column.str.to_lowercase().is_in(YES).fill_null(False)
    # By way of a float, since a whole number may be written as 3.0.
    number = column.cast(pl.Float64, strict=False)
    if name in WHOLE:
        return number.fill_nan(None).cast(pl.Int64, strict=False)
    return number if name in MARKED else pl.when(number.is_finite()).then(number).alias(name)
