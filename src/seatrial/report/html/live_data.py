"""The page's data while a campaign runs, without a file being written: whoever looks on may only read.

In: results whose runs have something to draw. Out: the `PageData` that `read_page_data` would read if a report were written now, cell for
cell; a test holds that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seatrial.records.charts import MARKED, Columns
from seatrial.records.results import CampaignResults
from seatrial.report.chart_tables import chart_frames
from seatrial.report.html.page_data import PageData
from seatrial.report.html.summary_tables import groups_table, runs_table
from seatrial.report.summary import summary_json

if TYPE_CHECKING:
    import polars


def page_data_of(results: CampaignResults) -> PageData:
    """Everything that the page shows of these results."""
    summary = summary_json(results)
    tables = {"groups": groups_table(summary), "runs": runs_table(summary)}
    tables |= {name: _columns(frame) for name, frame in chart_frames(results)}
    return PageData(summary=summary, tables={name: table for name, table in tables.items() if table})


def _columns(frame: polars.DataFrame) -> Columns:
    """As the cells come back from a file: no text is empty text, and what is no number is none, save where that says something."""
    return {series.name: _cells(series) for series in frame.iter_columns()}


def _cells(series: polars.Series) -> list[str | int | float | bool | None]:
    import polars as pl

    if series.dtype == pl.String:
        return series.fill_null("").to_list()
    if series.dtype == pl.Boolean:
        return series.fill_null(False).to_list()
    if series.dtype.is_float() and series.name not in MARKED:
        return series.set(~series.is_finite(), None).to_list()
    return series.to_list()
