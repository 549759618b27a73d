"""Measured runs, step tables, sides of a comparison and synchronising ranks for the tests of analyse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.comparison import compare_pairs
from seatrial.analyse.stragglers import NAMES
from seatrial.collect.event_steps import PAUSE_SCHEMA, STEP_SCHEMA
from seatrial.records.attempt import Attempt, Provenance, StepTables
from seatrial.records.caution import Caution, Scalar
from seatrial.records.comparison import ComparedGroup, ComparedRun, Comparison
from seatrial.records.measure import EffectiveSetting, Estimate, GroupSummary, LossCurve, RunMeasure, Window
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import LauncherSpec, PlaceSpec, RunSpec, TimingSpec, WorkloadSpec
from seatrial.records.results import MeasuredRun

STARTED_T = 1_794_700_000.0


def effective(
    reported: Mapping[str, tuple[Scalar, Scalar, str]], declared: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, EffectiveSetting]:
    """Effective settings by name, from what was requested, what was in effect, and the reason; `declared` is what each may follow."""
    return {
        name: EffectiveSetting(name=name, requested=asked, effective=used, reason=reason, follows=(declared or {}).get(name, ()))
        for name, (asked, used, reason) in reported.items()
    }


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
    """One attempt of a run, ended ok by default."""
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


MACHINE = {"host": "node-1", "gpu_name": "Example GPU", "driver_version": "550"}


def side(
    name: str, rates: Sequence[float], *, metric: str = "samples_per_s", offset_s: float = 0.0, run: Any = None, **changes: Any
) -> ComparedGroup:
    """A side with one run a rate, in rounds of 100 s; `offset_s` is where in its round it begins."""
    runs = tuple(
        ComparedRun(
            run=f"{name}_r{at}",
            repeat=at,
            started_t=1000.0 + 100 * at + offset_s,
            figures={metric: rate, "steps_per_s": rate / 10},
            window="steps 40–199",
            n=160,
            **(run or {}),
        )
        for at, rate in enumerate(rates, start=1)
    )
    values: dict[str, Any] = {"group": name, "source": "out", "campaign": "/out", "machine": MACHINE, "runs": runs}
    return ComparedGroup(name=name, **{**values, **changes})


def elsewhere(name: str, rates: Sequence[float], **changes: Any) -> ComparedGroup:
    """A side of another campaign."""
    return side(name, rates, **{"campaign": f"/other/{name}", "source": "other", **changes})


def compare(a: ComparedGroup, b: ComparedGroup, **how: Any) -> Comparison:
    """B against A, alone."""
    return compare_pairs([(a, b)], **how)[0]


def course(last: float, *, first: float = 5.0, steps: int = 200, noise: float = 0.02, seed: int = 0) -> LossCurve:
    """A loss that falls from `first` to `last`, a point a step."""
    random = np.random.default_rng(seed)
    losses = [last + (first - last) * math.exp(-6 * step / steps) + random.normal(0, noise) for step in range(steps)]
    return LossCurve(steps=tuple(range(steps)), losses=tuple(losses), n=steps, noise=noise)


Floats = npt.NDArray[np.float64]
WORK_MS = {"data_wait": 4.0, "preprocess": 6.0, "fwd": 30.0, "bwd": 45.0, "step": 15.0}


def own_work(ranks: int, steps: int, *, noise: float = 0.02, extra: Mapping[tuple[int, str], float] | None = None) -> dict[str, Floats]:
    """By phase, ranks × steps in ms; `extra` is by rank and phase, in ms."""
    chance = np.random.default_rng([ranks, steps])
    work = {}
    for name, mean_ms in WORK_MS.items():
        means = np.full((ranks, steps), mean_ms)
        for (rank, phase), more_ms in (extra or {}).items():
            means[rank] += more_ms if phase == name else 0.0
        work[name] = means * np.exp(chance.normal(0.0, noise, (ranks, steps)))
    return work


def meeting(work: Mapping[str, Floats], meets_in: str = "bwd", outside: Floats | None = None) -> dict[str, Floats]:
    """The phases as clocks measure them, and iter_ms: all ranks leave the synchronising phase when the last has arrived."""
    at = NAMES.index(meets_in)
    since = np.sum([work[name] for name in NAMES[at + 1 :]] or [np.zeros_like(work[meets_in])], axis=0)
    since = since if outside is None else since + outside
    arrival = np.sum([work[name] for name in NAMES[: at + 1]], axis=0)
    arrival[:, 1:] += since[:, :-1]
    phases = {**work, meets_in: work[meets_in] + arrival.max(axis=0) - arrival}
    return {**phases, "iter": np.sum(list(phases.values()), axis=0) + (0.0 if outside is None else outside)}


def as_tables(phases: Mapping[str, Floats], *, phase_every: int = 1, **changes: Any) -> StepTables:
    """Step tables of all ranks; `phase_every` as on GPUs."""
    ranks, steps = phases["bwd"].shape
    taken = np.arange(steps) % phase_every == 0
    parts = []
    for rank in range(ranks):
        columns = {
            f"{name}_ms": np.where(taken | (name == "data_wait"), values[rank], np.nan) for name, values in phases.items() if name != "iter"
        }
        parts.append(steps_of(phases["iter"][rank].tolist(), rank=rank, **columns).with_columns(pl.all().fill_nan(None)))
    return tables(*parts, **changes)


def run(
    ranks: int = 4,
    steps: int = 60,
    *,
    meets_in: str = "bwd",
    noise: float = 0.02,
    extra: Mapping[tuple[int, str], float] | None = None,
    phase_every: int = 1,
    **changes: Any,
) -> StepTables:
    """All of it at once."""
    return as_tables(meeting(own_work(ranks, steps, noise=noise, extra=extra), meets_in), phase_every=phase_every, **changes)


def golden(name: str, folder: Path = Path(__file__).parent) -> list[str]:
    """The sentences of golden/NAME.txt, one a line, which are read by people and never written by a test."""
    return (folder / "golden" / f"{name}.txt").read_text().splitlines()


def assert_golden(name: str, lines: Sequence[str]) -> None:
    assert [*lines] == golden(name)
