"""Attempts, step tables and measured runs with known truth, for tests that need no disk.

`attempt(...)`, `tables(...)` and `measured(...)` fill everything a test does not care about; other folders' tests may use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from seatrial.collect.step_schema import PAUSE_SCHEMA, STEP_SCHEMA
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.command import Provenance
from seatrial.records.measure import Estimate, GroupSummary, RunMeasure, Window
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import LauncherSpec, PlaceSpec, RunSpec, TimingSpec, WorkloadSpec
from seatrial.records.steps import StepTables

STARTED_T = 1_794_700_000.0


def spec(group: str = "mb8", repeat: int = 1, *, ranks: int = 1, workload: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    """A run of a group."""
    values: dict[str, Any] = {
        "run": f"{group}_r{repeat}",
        "group": group,
        "repeat": repeat,
        "hash": f"hash-{group}-{repeat}",
        "group_key": f"key-{group}",
        "plan": "factory",
        "workload": WorkloadSpec(**{"name": "train.py", "script": "train.py", **(workload or {})}),
        "launcher": LauncherSpec(kind="python"),
        "place": PlaceSpec(ranks=ranks),
        "cwd": "/srv/job",
        "timing": TimingSpec(log_every=10),
    }
    return RunSpec(**{**values, **changes})


def attempt(
    run: RunSpec | None = None,
    *,
    number: int = 1,
    outcome: Outcome | None = Outcome.OK,
    cause: Cause = Cause.NONE,
    folder: str | None = None,
    current: bool = True,
    provenance: Provenance | None = None,
    started_t: float = STARTED_T,
    duration_s: float = 60.0,
) -> Attempt:
    """One attempt of a run, ended ok unless told otherwise."""
    run = run or spec()
    ended = outcome and RunOutcome(
        run=run.run, attempt=number, hash=run.hash, outcome=outcome, cause=cause, exit_code=0, started_t=started_t, duration_s=duration_s
    )
    return Attempt(
        folder=folder or f"/out/{run.run}/attempt-{number}",
        number=number,
        spec=run,
        outcome=ended or None,
        provenance=provenance or Provenance(fingerprint="f0"),
        current=current,
    )


def steps_of(times_ms: Sequence[float], *, rank: int = 0, first_step: int = 0, **columns: Any) -> pl.DataFrame:
    """A step table of one rank; `columns` are scalars or sequences (samples=8, loss=[…])."""
    count = len(times_ms)
    ends_s = np.cumsum(np.asarray(times_ms, dtype=float)) / 1000
    data: dict[str, Any] = {
        "rank": [rank] * count,
        "step": range(first_step, first_step + count),
        "span": [1] * count,
        "t": STARTED_T + 5.0 + ends_s,
        "m": 100.0 + ends_s,
        "iter_ms": [float(value) for value in times_ms],
    }
    for name, value in columns.items():
        data[name] = list(value) if isinstance(value, Iterable) else [value] * count
    return pl.DataFrame({name: data.get(name, [None] * count) for name in STEP_SCHEMA}, schema=STEP_SCHEMA)


def pauses_of(*rows: tuple[int, int, str, float]) -> pl.DataFrame:
    """A pause table of (rank, step, name, ms)."""
    return pl.DataFrame(list(rows), schema=PAUSE_SCHEMA, orient="row")


def tables(
    *parts: pl.DataFrame, pauses: pl.DataFrame | None = None, source: str = "events", world_size: int | None = None, **changes: Any
) -> StepTables:
    """Step tables of one or several ranks."""
    return StepTables(
        source=source,
        steps=pl.concat(parts) if parts else pl.DataFrame(schema=STEP_SCHEMA),
        pauses=pauses if pauses is not None else pl.DataFrame(schema=PAUSE_SCHEMA),
        world_size=world_size or max(len(parts), 1),
        **changes,
    )


def measured(
    run: RunSpec | None = None, *, measure: dict[str, Any] | None = None, cautions: tuple[Caution, ...] = (), **changes: Any
) -> MeasuredRun:
    """An attempt with the given figures: `measured(spec("a", 1), measure={"samples_per_s": 100.0})`."""
    values: dict[str, Any] = {
        "source": "events",
        "window": Window(first_step=5, last_step=104, n=100, warmup_steps=5),
        "duration_s": 60.0,
        "cautions": cautions,
    }
    return MeasuredRun(attempt=attempt(run, **changes), measure=RunMeasure(**{**values, **(measure or {})}))


def group(name: str, *, runs: int = 3, figures: dict[str, Estimate] | None = None, **changes: Any) -> GroupSummary:
    """A group summary with the given figures."""
    values: dict[str, Any] = {
        "group": name,
        "group_key": f"key-{name}",
        "mode": "sweep",
        "lane": True,
        "axes": {},
        "runs": runs,
        "failed_runs": 0,
        "figures": figures or {},
    }
    return GroupSummary(**{**values, **changes})
