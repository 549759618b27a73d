"""per_run_metrics.csv, group_summary.csv, ranked_groups.csv and skipped_runs.tsv.

A table is written only when it has rows; one left from an earlier report is removed then, so that no file speaks of what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seatrial.paths import CampaignPaths
from seatrial.records.columns import SKIPPED
from seatrial.records.results import CampaignResults
from seatrial.report.rows import Row, group_columns, group_rows, per_run_columns, per_run_rows, ranked_rows, skipped_rows
from seatrial.tables import write_table


def write_tables(results: CampaignResults, paths: CampaignPaths) -> None:
    """Write all four, each whole or not at all."""
    _write_or_remove(paths.per_run_metrics, per_run_columns(results), per_run_rows(results))
    _write_or_remove(paths.group_summary, group_columns(results), group_rows(results))
    _write_or_remove(paths.ranked_groups, group_columns(results), ranked_rows(results))
    _write_or_remove(paths.skipped_runs, SKIPPED, skipped_rows(results), delimiter="\t")


def _write_or_remove(path: Path, columns: Sequence[str], rows: Sequence[Row], delimiter: str = ",") -> None:
    if rows:
        write_table(path, columns, rows, delimiter)
    else:
        path.unlink(missing_ok=True)
