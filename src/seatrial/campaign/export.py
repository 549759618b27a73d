"""Every table of a campaign, for other programs to read.

In: a campaign's folder and the name of a table. Out: its schema and its rows as frames, one run at a time where the table is large,
made from what lies on disk; nothing is written here. `TABLES` says which there are and what each holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.campaign.attempt_frames import FRAMES, Read
from seatrial.campaign.grouped import NO_POLARS, as_asked_now, can_measure, plans_of
from seatrial.campaign.results import gather_results
from seatrial.collect.attempts import read_campaign, read_plans
from seatrial.collect.manifest import FIXED_COLUMNS, eta_point_rows, manifest_row, timing_point_rows
from seatrial.errors import CampaignError, UsageError, did_you_mean
from seatrial.paths import CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.columns import ETA_POINTS, SKIPPED, TIMING_POINTS
from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.frames import Schema, csv_parts, typed_frame, write_frames
from seatrial.report.rows import axis_columns, group_columns, group_rows, per_run_columns, per_run_rows, ranked_rows, skipped_rows

if TYPE_CHECKING:
    import polars as pl

Rows = list[dict[str, Cell]]

TABLES = {
    "manifest": "every attempt, old and failed ones too, as in run_manifest.tsv",
    "runs": "every run that counts, as in per_run_metrics.csv",
    "groups": "every group, as in group_summary.csv",
    "ranked": "the same, in the order of the ranking",
    "timing_points": "percentiles of every phase at every logged step",
    "eta_points": "every estimate of the time to go, and how it turned out",
    "skipped": "runs that are over and give no timing, and why",
    "steps": "every step of every rank of every current run",
    "pauses": "every named pause: eval, checkpoint, compile",
    "gpu_telemetry": "every sample of the GPUs",
    "host_telemetry": "every sample of the host",
    "heartbeats": "every sign of life of every rank",
}
# What the same tables are called in the folder.
FILE_NAMES = {
    "run_manifest": "manifest",
    "per_run_metrics": "runs",
    "group_summary": "groups",
    "ranked_groups": "ranked",
    "skipped_runs": "skipped",
}
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table, ready to be read once."""

    name: str
    schema: Schema
    frames: Iterator[pl.DataFrame]

    def write(self, path: Path, form: str) -> int:
        """Write it whole, as `csv` or `parquet`; how many rows it has."""
        return write_frames(path, self.frames, self.schema, form)

    def csv(self) -> Iterator[str]:
        """The same as text, part by part."""
        return csv_parts(self.frames, self.schema)


def table_names(asked: Sequence[str]) -> list[str]:
    """The tables asked for, by name or by the name of their file, each once; `all` means all. An unknown one is refused."""
    asked = [FILE_NAMES.get(Path(name).stem, name) for name in asked]
    for name in asked:
        if name not in TABLES and name != ALL:
            raise UsageError(f"there is no table '{name}'; {did_you_mean(name, [*TABLES, ALL])}")
    return list(TABLES) if ALL in asked else list(dict.fromkeys(asked))


@dataclass
class Exporter:
    """Reads the tables of one campaign; what several tables need is read once."""

    paths: CampaignPaths
    left_out: list[str] = field(default_factory=list)
    """What could not be read, one sentence each, filled while frames are read."""

    def __post_init__(self) -> None:
        if not can_measure():
            raise CampaignError(NO_POLARS)
        plans_of(self.paths)

    def table(self, name: str) -> Table:
        """One table of TABLES."""
        if name in FRAMES:
            read, schema = FRAMES[name]
            return Table(name=name, schema=schema(), frames=self._of_attempts(read, schema()))
        columns, rows = _OF_RESULTS[name](self.results)
        frame = typed_frame(rows, columns)
        return Table(name=name, schema=frame.schema, frames=iter((frame,)))

    @cached_property
    def results(self) -> CampaignResults:
        return gather_results(self.paths)

    @cached_property
    def _attempts(self) -> list[Attempt]:
        asked = {(spec.run, spec.hash): spec for plan in read_plans(self.paths) for spec in plan.runs}
        return [as_asked_now(attempt, asked) for attempt in read_campaign(self.paths) if attempt.current]

    def _of_attempts(self, read: Read, schema: Schema) -> Iterator[pl.DataFrame]:
        for attempt in self._attempts:
            try:
                yield _marked(read(attempt), attempt, schema)
            except Exception as error:
                # What one odd run wrote must not keep the others from being exported.
                self.left_out.append(f"{attempt.spec.run}, attempt {attempt.number}: {type(error).__name__}: {error}")


def _marked(frame: pl.DataFrame, attempt: Attempt, schema: Schema) -> pl.DataFrame:
    import polars as pl

    marks = {"run": attempt.spec.run, "attempt": attempt.number, "group": attempt.spec.group}
    return frame.with_columns([pl.lit(value).alias(name) for name, value in marks.items()]).select(
        [pl.col(name).cast(kind) for name, kind in schema.items()]
    )


def _manifest(results: CampaignResults) -> tuple[Sequence[str], Rows]:
    return [*FIXED_COLUMNS, *axis_columns(results)], [manifest_row(run.attempt, run.measure) for run in results.runs]


def _current(results: CampaignResults) -> list[MeasuredRun]:
    return [run for run in results.runs if run.measure and run.attempt.current]


def _timing_points(results: CampaignResults) -> tuple[Sequence[str], Rows]:
    return TIMING_POINTS, [row for run in _current(results) if run.measure for row in timing_point_rows(run.attempt, run.measure)]


def _eta_points(results: CampaignResults) -> tuple[Sequence[str], Rows]:
    return ETA_POINTS, [row for run in _current(results) if run.measure for row in eta_point_rows(run.attempt, run.measure)]


_OF_RESULTS: dict[str, Callable[[CampaignResults], tuple[Sequence[str], Any]]] = {
    "manifest": _manifest,
    "runs": lambda results: (per_run_columns(results), per_run_rows(results)),
    "groups": lambda results: (group_columns(results), group_rows(results)),
    "ranked": lambda results: (group_columns(results), ranked_rows(results)),
    "timing_points": _timing_points,
    "eta_points": _eta_points,
    "skipped": lambda results: (SKIPPED, skipped_rows(results)),
}
