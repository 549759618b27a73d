"""What one attempt wrote, as frames of a fixed schema: steps, pauses, telemetry, heartbeats.

In: an attempt. Out: its rows, without the columns that say whose they are (`run`, `attempt`, `group`), which every schema has first.
A file that is missing gives no rows, a cell that is not what its column holds is null, and a last line torn by a kill is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial import files
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.codec import LARGEST_WHOLE
from seatrial.records.events import HEARTBEAT_FIELDS
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, TEXT_COLUMNS

if TYPE_CHECKING:
    import polars as pl

Read = Callable[[Attempt], "pl.DataFrame"]

WHOSE = ("run", "attempt", "group")
_TEXT = {*TEXT_COLUMNS, "iso", "msg", "phase", "host"}
_WHOLE = {"gpu_index", "process_count", "foreign_process_count", "train_proc_count", "tree_threads", "pid", "rank", "step"}


def read_step_frame(attempt: Attempt) -> pl.DataFrame:
    from seatrial.collect.steps import read_steps

    return read_steps(attempt).steps


def read_pause_frame(attempt: Attempt) -> pl.DataFrame:
    from seatrial.collect.steps import read_steps

    return read_steps(attempt).pauses


def read_gpu_telemetry(attempt: Attempt) -> pl.DataFrame:
    return _read_samples(AttemptPaths(Path(attempt.folder)).gpu_telemetry, _schema_of(GPU_COLUMNS))


def read_host_telemetry(attempt: Attempt) -> pl.DataFrame:
    return _read_samples(AttemptPaths(Path(attempt.folder)).host_telemetry, _schema_of(HOST_COLUMNS))


def read_heartbeats(attempt: Attempt) -> pl.DataFrame:
    import polars as pl

    schema = _schema_of(HEARTBEAT_FIELDS)
    paths = AttemptPaths(Path(attempt.folder))
    beats = [beat for path in paths.all_heartbeats() for beat in files.read_json_lines(path)]
    return pl.DataFrame({name: [_fitting(beat.get(name), kind) for beat in beats] for name, kind in schema.items()}, schema=schema)


def _read_samples(path: Path, schema: Mapping[str, Any]) -> pl.DataFrame:
    import polars as pl

    from seatrial.collect.telemetry import read_samples

    samples = read_samples(path, tuple(schema))
    if samples is None:
        return pl.DataFrame(schema=dict(schema))
    columns = [pl.col(name) if name in samples.columns else pl.lit(None).alias(name) for name in schema]
    return samples.select(columns).select([pl.col(name).cast(kind, strict=False) for name, kind in schema.items()])


def _schema_of(columns: tuple[str, ...]) -> dict[str, Any]:
    import polars as pl

    kinds = {**dict.fromkeys(_TEXT, pl.String), **dict.fromkeys(_WHOLE, pl.Int64)}
    return {name: kinds.get(name, pl.Float64) for name in columns if name not in WHOSE}


def _fitting(value: Any, kind: Any) -> Any:
    import polars as pl

    if kind == pl.String:
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # NaN is not below anything either.
    if not abs(value) < LARGEST_WHOLE:
        return None
    return float(value) if kind == pl.Float64 else int(value)


def _with_whose(schema: Mapping[str, Any]) -> dict[str, Any]:
    import polars as pl

    return {"run": pl.String, "attempt": pl.Int64, "group": pl.String, **schema}


def _step_schema() -> dict[str, Any]:
    from seatrial.collect.step_schema import STEP_SCHEMA

    return _with_whose(STEP_SCHEMA)


def _pause_schema() -> dict[str, Any]:
    from seatrial.collect.step_schema import PAUSE_SCHEMA

    return _with_whose(PAUSE_SCHEMA)


FRAMES: dict[str, tuple[Read, Callable[[], dict[str, Any]]]] = {
    "steps": (read_step_frame, _step_schema),
    "pauses": (read_pause_frame, _pause_schema),
    "gpu_telemetry": (read_gpu_telemetry, lambda: _with_whose(_schema_of(GPU_COLUMNS))),
    "host_telemetry": (read_host_telemetry, lambda: _with_whose(_schema_of(HOST_COLUMNS))),
    "heartbeats": (read_heartbeats, lambda: _with_whose(_schema_of(HEARTBEAT_FIELDS))),
}
