"""OUT/charts/*.csv: everything that charts are drawn from, beside summary.json.

In: results whose runs have something to draw. Out: one table of each kind over all current attempts, in their order and under names that
are unique (digest.labels), each written aside and renamed; one without rows is removed, and the folder too when nothing is left in it.
Numbers have six digits that say something, times are to the millisecond; a loss that is no number is `NaN`, `inf` or `-inf`, so that it
can be told from one that nobody told. Of very many runs some have no samples and no spans (digest.timeline_runs).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from seatrial.files import written_aside
from seatrial.paths import CampaignPaths
from seatrial.records.charts import CHART_TABLES, FLAGS, TEXTS, TIMES, WHOLE, WHOSE, Columns
from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.report.digest.labels import labels_of
from seatrial.report.digest.timeline_runs import TIMELINE, timeline_runs
from seatrial.tables import format_cell

if TYPE_CHECKING:
    import polars as pl

DIGITS = 6
SECONDS_DECIMALS = 3

Part = tuple[tuple[Cell, ...], Columns]
"""The cells of WHOSE, and one of that run's tables."""


def write_chart_tables(results: CampaignResults, paths: CampaignPaths) -> None:
    """Write every table that has rows, and remove the others."""
    frames = dict(chart_frames(results))
    for name in CHART_TABLES:
        path = paths.chart_table(name)
        if name not in frames:
            path.unlink(missing_ok=True)
            continue
        with written_aside(path) as temporary:
            frames[name].write_csv(temporary, float_scientific=False)
    # Pictures may lie there too, and on a bad disk it stays.
    with contextlib.suppress(OSError):
        paths.charts.rmdir()


def chart_frames(results: CampaignResults) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables that have rows, by name, as they are written."""
    labels = labels_of(results)
    in_time = timeline_runs(results)
    drawn = [
        (labels.whose(run.attempt.spec), run.charts.tables, run.attempt.folder in in_time)
        for run in results.runs
        if run.attempt.current and run.charts is not None
    ]
    for name, columns in CHART_TABLES.items():
        parts = [
            (whose, tables[name]) for whose, tables, has_timeline in drawn if tables.get(name) and (has_timeline or name not in TIMELINE)
        ]
        if parts:
            yield name, _frame(parts, columns)


def _frame(parts: Sequence[Part], columns: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    lengths = [len(table[columns[0]]) for _, table in parts]
    whose = {name: _repeated([cells[at] for cells, _ in parts], lengths) for at, name in enumerate(WHOSE)}
    of_runs = {name: chain.from_iterable([table[name] for _, table in parts]) for name in columns}
    return pl.DataFrame([_series(name, values) for name, values in {**whose, **of_runs}.items()])


def _repeated(values: Iterable[Cell], lengths: Sequence[int]) -> Iterable[Cell]:
    return chain.from_iterable([value] * length for value, length in zip(values, lengths, strict=True))


def _series(name: str, values: Iterable[Cell]) -> pl.Series:
    import polars as pl

    if name in TEXTS:
        return pl.Series(name, _texts(values), dtype=pl.String)
    if name in WHOLE or name in FLAGS:
        return pl.Series(name, list(values), dtype=pl.Int64 if name in WHOLE else pl.Boolean)
    numbers = pl.Series(name, list(values), dtype=pl.Float64, strict=False)
    return numbers.round(SECONDS_DECIMALS) if name in TIMES else numbers.round_sig_figs(DIGITS)


def _texts(values: Iterable[Any]) -> list[str | None]:
    """As cells of every other table: one line each, an empty one is none. There are many rows and few texts."""
    shown: dict[Any, str | None] = {}
    told = list(values)
    for value in set(told):
        shown[value] = (format_cell(value) or None) if value is not None else None
    return [shown[value] for value in told]
