"""Every table of a campaign, for other programs to read.

In: a campaign's folder and the name of a table. Out: its schema and its rows as frames, one run at a time for large tables, computed from
the files; nothing is written here. `TABLES` lists them. A missing file gives no rows, a cell that does not fit its column is null, and a
torn last line is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.collect.attempts import read_campaign, read_plans
from seatrial.collect.manifest import FIXED_COLUMNS, eta_point_rows, manifest_row, timing_point_rows
from seatrial.core import files
from seatrial.core.errors import CampaignError, UsageError, did_you_mean
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Scalar
from seatrial.records.codec import LARGEST_WHOLE
from seatrial.records.columns import ETA_POINTS, SKIPPED, TIMING_POINTS
from seatrial.records.events import HEARTBEAT_FIELDS
from seatrial.records.results import CampaignResults
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, TEXT_COLUMNS
from seatrial.report import tables
from seatrial.report.tables import Schema
from seatrial.results.gather import NO_POLARS, can_measure, planned_specs, require_plans, with_current_spec
from seatrial.results.recompute import gather_results

if TYPE_CHECKING:
    import polars as pl

Read = Callable[[Attempt], "pl.DataFrame"]
Rows = list[dict[str, Scalar]]

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
    "heartbeats": "every heartbeat of every rank",
}
# File name in the folder → table.
FILE_NAMES = {
    "run_manifest": "manifest",
    "per_run_metrics": "runs",
    "group_summary": "groups",
    "ranked_groups": "ranked",
    "skipped_runs": "skipped",
}
ALL = "all"
OWNER_COLUMNS = ("run", "attempt", "group")
"""First columns of every table of single attempts."""
_TEXT = {*TEXT_COLUMNS, "iso", "msg", "phase", "host"}
_WHOLE = {"gpu_index", "process_count", "foreign_process_count", "train_proc_count", "tree_threads", "pid", "rank", "step"}


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table, ready to be read once."""

    name: str
    schema: Schema
    frames: Iterator[pl.DataFrame]

    def write(self, path: Path, form: str) -> int:
        """Write it as `csv` or `parquet`; returns the number of rows."""
        return tables.write_frames(path, self.frames, self.schema, form)

    def csv(self) -> Iterator[str]:
        """The table as CSV text, part by part."""
        return tables.csv_parts(self.frames, self.schema)


def table_names(requested: Sequence[str]) -> list[str]:
    """The requested tables, by table or file name, each once; `all` means all. An unknown name is refused."""
    names = [FILE_NAMES.get(Path(name).stem, name) for name in requested]
    for name in names:
        if name not in TABLES and name != ALL:
            raise UsageError(f"there is no table '{name}'; {did_you_mean(name, [*TABLES, ALL])}")
    return list(TABLES) if ALL in names else list(dict.fromkeys(names))


@dataclass
class Exporter:
    """Reads the tables of a campaign; what several tables need is read once."""

    paths: CampaignPaths
    left_out: list[str] = field(default_factory=list)
    """What could not be read, one sentence each, filled while frames are read."""

    def __post_init__(self) -> None:
        if not can_measure():
            raise CampaignError(NO_POLARS)
        require_plans(self.paths)

    def table(self, name: str) -> Table:
        """One table of TABLES."""
        if name not in _RESULT_TABLES:
            import polars as pl

            read, own = _attempt_tables()[name]
            schema = {"run": pl.String, "attempt": pl.Int64, "group": pl.String, **own}
            return Table(name=name, schema=schema, frames=self._attempt_frames(read, schema))
        columns, rows = _RESULT_TABLES[name](self.results)
        frame = tables.typed_frame(rows, columns)
        return Table(name=name, schema=frame.schema, frames=iter((frame,)))

    @cached_property
    def results(self) -> CampaignResults:
        return gather_results(self.paths)

    @cached_property
    def _attempts(self) -> list[Attempt]:
        specs = planned_specs(read_plans(self.paths))
        return [with_current_spec(attempt, specs) for attempt in read_campaign(self.paths) if attempt.current]

    def _attempt_frames(self, read: Read, schema: Schema) -> Iterator[pl.DataFrame]:
        import polars as pl

        for attempt in self._attempts:
            try:
                owner = zip(OWNER_COLUMNS, (attempt.spec.run, attempt.number, attempt.spec.group), strict=True)
                frame = read(attempt).with_columns([pl.lit(value).alias(name) for name, value in owner])
                yield frame.select([pl.col(name).cast(kind) for name, kind in schema.items()])
            except Exception as error:
                # One damaged run must not keep the others from being exported.
                self.left_out.append(f"{attempt.spec.run}, attempt {attempt.number}: {type(error).__name__}: {error}")


def read_gpu_telemetry(attempt: Attempt) -> pl.DataFrame:
    """GPU samples of an attempt, without the owner columns."""
    return _read_samples(AttemptPaths(Path(attempt.folder)).gpu_telemetry, _schema_of(GPU_COLUMNS))


def read_host_telemetry(attempt: Attempt) -> pl.DataFrame:
    """Host samples of an attempt, without the owner columns."""
    return _read_samples(AttemptPaths(Path(attempt.folder)).host_telemetry, _schema_of(HOST_COLUMNS))


def _read_heartbeats(attempt: Attempt) -> pl.DataFrame:
    import polars as pl

    schema = _schema_of(HEARTBEAT_FIELDS)
    paths = AttemptPaths(Path(attempt.folder))
    if huge := [path.name for path in paths.all_heartbeats() if files.size_bytes(path) > files.LARGEST_WHOLE_BYTES]:
        raise CampaignError(f"{huge[0]} is not read: it is above the limit of {files.LARGEST_WHOLE_BYTES >> 20} MiB")
    beats = [beat for path in paths.all_heartbeats() for beat in files.read_json_lines(path)]
    return pl.DataFrame({name: [_cell(beat.get(name), kind) for beat in beats] for name, kind in schema.items()}, schema=schema)


def _read_samples(path: Path, schema: Mapping[str, Any]) -> pl.DataFrame:
    import polars as pl

    from seatrial.collect.telemetry import read_samples

    samples = read_samples(path, tuple(schema))
    if samples is None:
        return pl.DataFrame(schema=dict(schema))
    columns = [pl.col(name) if name in samples.columns else pl.lit(None).alias(name) for name in schema]
    return samples.select(columns).select([pl.col(name).cast(kind, strict=False) for name, kind in schema.items()])


def _cell(value: Any, kind: Any) -> Any:
    """None where the value does not fit the column."""
    import polars as pl

    if kind == pl.String:
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # Also false for NaN.
    if not abs(value) < LARGEST_WHOLE:
        return None
    return float(value) if kind == pl.Float64 else int(value)


def _schema_of(columns: tuple[str, ...]) -> dict[str, Any]:
    import polars as pl

    kinds = {**dict.fromkeys(_TEXT, pl.String), **dict.fromkeys(_WHOLE, pl.Int64)}
    return {name: kinds.get(name, pl.Float64) for name in columns if name not in OWNER_COLUMNS}


def _attempt_tables() -> dict[str, tuple[Read, Mapping[str, Any]]]:
    """Tables of single attempts: how they are read, and their schema without the owner columns."""
    from seatrial.collect.event_steps import PAUSE_SCHEMA, STEP_SCHEMA
    from seatrial.collect.steps import read_steps

    return {
        "steps": (lambda attempt: read_steps(attempt).steps, STEP_SCHEMA),
        "pauses": (lambda attempt: read_steps(attempt).pauses, PAUSE_SCHEMA),
        "gpu_telemetry": (read_gpu_telemetry, _schema_of(GPU_COLUMNS)),
        "host_telemetry": (read_host_telemetry, _schema_of(HOST_COLUMNS)),
        "heartbeats": (_read_heartbeats, _schema_of(HEARTBEAT_FIELDS)),
    }


def _manifest(results: CampaignResults) -> tuple[Sequence[str], Rows]:
    return [*FIXED_COLUMNS, *tables.axis_columns(results)], [manifest_row(run.attempt, run.measure) for run in results.runs]


def _points(results: CampaignResults, columns: Sequence[str], rows_of: Callable[..., Rows]) -> tuple[Sequence[str], Rows]:
    return columns, [row for run in results.runs if run.measure and run.attempt.current for row in rows_of(run.attempt, run.measure)]


_RESULT_TABLES: dict[str, Callable[[CampaignResults], tuple[Sequence[str], Any]]] = {
    "manifest": _manifest,
    "runs": lambda results: (tables.per_run_columns(results), tables.per_run_rows(results)),
    "groups": lambda results: (tables.group_columns(results), tables.group_rows(results)),
    "ranked": lambda results: (tables.group_columns(results), tables.ranked_rows(results)),
    "timing_points": lambda results: _points(results, TIMING_POINTS, timing_point_rows),
    "eta_points": lambda results: _points(results, ETA_POINTS, eta_point_rows),
    "skipped": lambda results: (SKIPPED, tables.skipped_rows(results)),
}
