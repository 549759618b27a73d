"""Folders that stand where a table or a report is to be written, and a file where a folder of tables is.

In: a campaign's folder, or one file to be. Out: each of them under another name beside it, and a caution that says so. Nothing of them is
lost, and one that is in the way does not cost the rest of the report.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from seatrial.paths import CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.charts import CHART_TABLES


def folders_moved_aside(paths: CampaignPaths) -> list[Caution]:
    """Make way for every file of the report."""
    files = [_moved(paths.charts, "file")] if paths.charts.is_file() else []
    return files + [moved for path in _written(paths) if (moved := folder_moved_aside(path))]


def folder_moved_aside(path: Path) -> Caution | None:
    """Make way for one file; None where nothing stands there but a file."""
    return _moved(path, "folder") if path.is_dir() and not path.is_symlink() else None


def _written(paths: CampaignPaths) -> Iterator[Path]:
    yield from (paths.manifest, paths.timing_points, paths.eta_points, paths.skipped_runs)
    yield from (paths.per_run_metrics, paths.group_summary, paths.ranked_groups)
    yield from (paths.verdict, paths.summary_json, paths.summary_md)
    yield from (paths.best_config_json, paths.best_config_env, paths.best_overrides)
    yield from (paths.summary_html, *(paths.chart_table(name) for name in CHART_TABLES))


def _moved(path: Path, what: str) -> Caution:
    free = (path.with_name(f"{path.name}.{what}-{number}") for number in itertools.count(1))
    aside = next(name for name in free if not name.exists())
    path.rename(aside)
    return Caution(
        kind="moved_aside",
        text=f"A {what} stood where {path.name} is to be written; it is now {aside.name}: remove it if it is not needed.",
    )
