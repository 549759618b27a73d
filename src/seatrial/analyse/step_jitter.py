"""Why a run's steps are uneven, or slower than they could be.

In: its step tables, its telemetry with the samplers' account, the measured window, and its straggler, if any. Out: `JitterCause`s, the
strongest evidence first, none for a healthy run: waits for data, a slow rank or host, CPU contention, steal, gaps in the telemetry, and
what analyse.gpu_throttling finds. A cause is named only where there are enough samples and it exceeds its bound; missing samples show
neither a cause nor health.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.gpu_throttling import gpu_causes
from seatrial.analyse.statistics import median
from seatrial.analyse.steady_state import find_grid
from seatrial.analyse.telemetry_summary import STEAL_PCT, Floats, WindowSpan, column, samplers, strongest_by_kind, tables_by_host
from seatrial.core.paths import ATTEMPT_FILES, EVENTS_OF_ALL_RANKS
from seatrial.core.text import count
from seatrial.records.attempt import StepTables
from seatrial.records.caution import Number
from seatrial.records.measure import JitterCause, Straggler, StragglerVerdict, Window
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables

PHASE_ADVICE = {
    "data_wait": "Look at the loader and the storage of its host",
    "preprocess": "Look at the load of its host and at what it preprocesses",
    "fwd": "Look at its GPU's clocks and at the load of its host",
    "bwd": "Look at its GPU's clocks and at its links to the others",
    "step": "Look at its GPU's clocks and at what it alone does after a step: logs, checkpoints",
}
RANK_ADVICE = "Look at its GPU's clocks, its links and the load of its host"
MIN_STEPS = 20
"""With fewer steps there are too few slow ones to show a cause."""
SLOW_RATIO = 1.5
"""A step above this many medians is slow: stage 1's bound for p90/p50."""
MIN_BURSTS = 3
"""One or two long waits may have any cause."""
MIN_EXPLAINED = 0.5
"""Waiting is the cause of slow steps where it is most of their excess over the median."""
MIN_COST = 0.02
"""Bursts that cost a smaller share of the window's time change no decision."""
MIN_SHARE = 0.15
"""Smaller shares are only the hand-over of a batch; from here on the loader limits the rate."""
REGULAR_SHARE = 0.8
"""Share of the distances between bursts that must be equal for them to be periodic."""
DATA_ADVICE = "Raise num_workers or prefetch_factor, or look at the storage behind the data"
HOST_FILE = ATTEMPT_FILES.host_telemetry.name
MIN_HOST_SAMPLES = 10
"""With fewer samples, a single busy moment would be a large share."""
BUSY_PCT = 90.0
"""So close to all CPUs that a rank has to wait for one."""
OTHERS_PCT = 20.0
"""Share of all CPUs; the system's own services may take less."""
MIN_CONTENDED = 0.2
"""Share of the samples: fewer than one in five do not affect the median step."""
CROWDED_RATIO = 1.5
"""Runnable processes per CPU: from here on one in three waits."""
MIN_CROWDED = 0.5
"""The load is a mean over a minute, so it describes the window only if most of the window is busy."""
MIN_INTERVALS = 10
"""In a shorter window one late sample is a large share."""
GAP_INTERVALS = 2.0
"""As the sampler counts gaps."""
MIN_LOST = 0.05
"""Share of the window: shorter gaps change no figure."""
GAP_WEIGHT = 0.25
"""A gap hides what happened, so it is weaker evidence than any sample."""


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """The counted steps with a known wait for data."""

    number: npt.NDArray[np.int64]
    wall_ms: Floats
    wait_ms: Floats


def find_jitter_causes(
    tables: StepTables,
    samples: TelemetryTables,
    account: TelemetryAccount | None,
    span: WindowSpan,
    straggler: Straggler | None,
    *,
    cores: Mapping[str, int] | int | None = None,
    others: Mapping[str, TelemetryAccount] | None = None,
) -> tuple[JitterCause, ...]:
    """All causes. `cores` are the CPUs of the host, or of each host: without them it is unknown who causes the load. `others` are the
    accounts of the hosts other than node 0."""
    if span.first_t is None and span.window is not None:
        span = replace(span, first_t=_begins_t(tables, span.window))
    found = [*data_causes(tables, span), *_slow_rank(straggler, tables)]
    if samples.gpu is not None:
        found.extend(gpu_causes(samples.gpu, span, tables.world_size, samples.hosts))
    for_host = cores.get if isinstance(cores, Mapping) else lambda _: cores
    by_host = tables_by_host(samples.host, samples.hosts)
    found.extend(strongest_by_kind((host, cause) for host, rows in by_host for cause in host_causes(rows, span, for_host(host))))
    found.extend(strongest_by_kind(_all_gaps(samples, account, others or {}, span)))
    return tuple(sorted(found, key=lambda cause: -cause.strength))


def _all_gaps(
    samples: TelemetryTables, account: TelemetryAccount | None, others: Mapping[str, TelemetryAccount], span: WindowSpan
) -> Iterator[tuple[str, JitterCause]]:
    first = samples.hosts[0] if samples.hosts else ""
    accounts = {**({first: account} if account is not None else {}), **others}
    gpu, host = dict(tables_by_host(samples.gpu, samples.hosts)), dict(tables_by_host(samples.host, samples.hosts))
    for name, known in accounts.items():
        own = TelemetryTables(gpu=gpu.get(name), host=host.get(name))
        yield from ((name, cause) for cause in gap_causes(own, known, span))


def _begins_t(tables: StepTables, window: Window) -> float | None:
    """Start of a window without a step before it, so that samples of the start-up are excluded."""
    rows = tables.steps.head(1)
    if rows.is_empty() or rows["step"][0] < window.first_step:
        return None
    ends_t, iter_ms = rows["t"][0], rows["iter_ms"][0]
    begins_t = math.nan if ends_t is None or iter_ms is None else ends_t - rows["span"][0] * iter_ms / 1000
    return begins_t if math.isfinite(begins_t) else None


def _slow_rank(straggler: Straggler | None, tables: StepTables) -> Iterator[JitterCause]:
    """The slow rank, or its host if all ranks of it are slow and no others."""
    if straggler is None or straggler.verdict is not StragglerVerdict.NAMED or straggler.score is None:
        return
    phase, score = straggler.phase.removesuffix("_ms"), straggler.score
    steps = "the whole run" if straggler.first_step is None else f"steps {straggler.first_step} to {straggler.last_step}"
    location = " on ".join(filter(None, (f"GPU {straggler.gpu}" if straggler.gpu else "", straggler.host)))
    costs = "" if straggler.held_up_ms is None else f", which delays every step by {straggler.held_up_ms:.3g} ms (median)"
    longer = f"works {score:.0%} longer than the others{f' in {phase}' if phase else ''}{costs} ({steps}, n = {straggler.n})"
    numbers: dict[str, Number] = {"rank": straggler.rank, "score": score, "phase": phase, "held_up_ms": straggler.held_up_ms}
    text = f"Rank {straggler.rank}{f' ({location})' if location else ''} {longer}. {PHASE_ADVICE.get(phase, RANK_ADVICE)}."
    if straggler.slow_host:
        numbers = {"host": straggler.slow_host, "ranks": straggler.slow_host_ranks, **numbers}
        text = (
            f"All {straggler.slow_host_ranks} ranks of host {straggler.slow_host} are slow, and no other host's: rank {straggler.rank} "
            f"{longer}. Look at what they share: CPUs, clocks, power, cooling, storage, another job; compare the host's rows in the table "
            "of hosts."
        )
    yield JitterCause(
        kind="slow_host" if straggler.slow_host else "slow_rank",
        text=text,
        numbers=numbers,
        file=_steps_file(tables),
        window=steps,
        n=straggler.n,
        strength=score / (1 + score),
    )


def _steps_file(tables: StepTables) -> str:
    return EVENTS_OF_ALL_RANKS if tables.source == "events" else ATTEMPT_FILES.launcher_log.name


def data_causes(tables: StepTables, span: WindowSpan) -> Iterator[JitterCause]:
    """Waits for data: bursts, a share of every step, or both."""
    steps = _counted(tables, span)
    if steps is None or not steps.wait_ms.sum() > MIN_COST * steps.wall_ms.sum():
        return
    yield from _bursts(steps, span, _steps_file(tables))
    yield from _constant(steps, span, _steps_file(tables))


def _counted(tables: StepTables, span: WindowSpan) -> _Steps | None:
    step, rank, iter_ms, wait_ms = (tables.steps[name].to_numpy() for name in ("step", "rank", "iter_ms", "data_wait_ms"))
    kept = (iter_ms > 0) & (iter_ms < np.inf) & (wait_ms >= 0) & (wait_ms < np.inf)
    if span.window is not None:
        kept &= (step >= span.window.first_step) & (step <= span.window.last_step)
    if len(tables.pauses):
        kept &= ~np.isin(step, tables.pauses["step"].to_numpy())
    # An upper bound of the ranks' waits: most runs need no more than this.
    if not wait_ms[kept].sum() * tables.world_size > MIN_COST * iter_ms[kept].sum():
        return None
    grid = find_grid(rank[kept], step[kept])
    if len(grid.numbers) < MIN_STEPS:
        return None
    return _Steps(number=grid.numbers, wall_ms=grid.longest(iter_ms[kept]), wait_ms=grid.longest(wait_ms[kept]))


def _bursts(steps: _Steps, span: WindowSpan, file: str) -> Iterator[JitterCause]:
    usual_ms, usual_wait_ms = median(steps.wall_ms), median(steps.wait_ms)
    slow = steps.wall_ms > SLOW_RATIO * usual_ms
    beyond_ms = steps.wall_ms[slow] - usual_ms
    waited_ms = np.minimum(np.maximum(steps.wait_ms[slow] - usual_wait_ms, 0.0), beyond_ms)
    bursts = waited_ms > MIN_EXPLAINED * beyond_ms
    if bursts.sum() < MIN_BURSTS:
        return
    explained, cost = float(waited_ms.sum() / beyond_ms.sum()), float(waited_ms.sum() / steps.wall_ms.sum())
    if explained < MIN_EXPLAINED or cost < MIN_COST:
        return
    count, n, burst_ms, every = int(bursts.sum()), len(steps.number), median(waited_ms[bursts]), _every(steps.number[slow][bursts])
    rhythm = f", every {every} steps" if every else ""
    yield JitterCause(
        kind="data_wait_bursts",
        text=f"In {count} of {n} steps ({span.text}) the ranks waited {burst_ms:.3g} ms longer for data than the usual "
        f"{usual_wait_ms:.3g} ms{rhythm}: {explained:.0%} of the excess time of slow steps, {cost:.0%} of the window's time. "
        f"{DATA_ADVICE}.",
        numbers={
            "bursts": count,
            "burst_ms": burst_ms,
            "usual_wait_ms": usual_wait_ms,
            "explained_ratio": explained,
            "time_ratio": cost,
            "every_steps": every,
        },
        file=file,
        window=span.text,
        n=n,
        strength=explained,
    )


def _every(numbers: npt.NDArray[np.int64]) -> int | None:
    """The usual number of steps between bursts; None where they are not periodic."""
    between = np.diff(numbers)
    usual = int(np.median(between))
    return usual if (between == usual).mean() >= REGULAR_SHARE else None


def _constant(steps: _Steps, span: WindowSpan, file: str) -> Iterator[JitterCause]:
    wall_ms, wait_ms, n = median(steps.wall_ms), median(steps.wait_ms), len(steps.number)
    share = wait_ms / wall_ms
    if share < MIN_SHARE:
        return
    yield JitterCause(
        kind="data_wait",
        text=f"The ranks wait for data {wait_ms:.3g} of the {wall_ms:.4g} ms of a step ({share:.0%}, medians over {span.text}, n = {n}). "
        f"{DATA_ADVICE}.",
        numbers={"wait_ms": wait_ms, "step_ms": wall_ms, "share": share},
        file=file,
        window=span.text,
        n=n,
        strength=min(1.0, share),
    )


def host_causes(table: pl.DataFrame, span: WindowSpan, cores: int | None) -> Iterator[JitterCause]:
    """CPU time that others took from the run. `cpu_*_pct` are shares of all CPUs, `tree_cpu_pct` is the run's own use in percent of one
    CPU: comparing them needs `cores`."""
    rows = span.rows(table)
    if len(rows) < MIN_HOST_SAMPLES:
        return
    yield from _steal(column(rows, "cpu_steal_pct"), span)
    if cores:
        yield from _load(rows, span, cores)


def _steal(steal_pct: Floats, span: WindowSpan) -> Iterator[JitterCause]:
    known = steal_pct[~np.isnan(steal_pct)]
    if len(known) < MIN_HOST_SAMPLES or not known.mean() > STEAL_PCT:
        return
    mean, most = float(known.mean()), float(known.max())
    yield JitterCause(
        kind="host_steal",
        text=f"The hypervisor took {mean:.0f} % of the CPU time (steal, up to {most:.0f} % in a sample, n = {len(known)}, {span.text}). "
        "Use a dedicated host or reserved CPUs, and run again.",
        numbers={"steal_mean_pct": mean, "steal_max_pct": most},
        file=HOST_FILE,
        window=span.text,
        n=len(known),
        strength=min(1.0, mean / 100),
    )


def _load(rows: pl.DataFrame, span: WindowSpan, cores: int) -> Iterator[JitterCause]:
    busy, own = column(rows, "cpu_user_pct") + column(rows, "cpu_system_pct"), column(rows, "tree_cpu_pct") / cores
    known = ~np.isnan(busy + own)
    if known.sum() < MIN_HOST_SAMPLES:
        return
    busy, own, load = busy[known], own[known], column(rows, "load1")[known]
    full = busy >= BUSY_PCT
    contended = full & (busy - own >= OTHERS_PCT)
    if contended.mean() >= MIN_CONTENDED:
        yield _others(busy[contended], own[contended], float(contended.mean()), len(busy), span, cores)
    elif full.mean() >= MIN_CROWDED and not np.isnan(load).any() and median(load) >= CROWDED_RATIO * cores:
        yield _crowded(median(load), float(full.mean()), float(own[full].mean()), len(busy), span, cores)


def _others(busy: Floats, own: Floats, share: float, n: int, span: WindowSpan, cores: int) -> JitterCause:
    taken = float((busy - own).mean())
    return JitterCause(
        kind="host_load",
        text=f"In {share:.0%} of {n} samples ({span.text}) the host's {cores} CPUs were at least {BUSY_PCT:.0f} % busy: {taken:.0f} % with "
        f"other processes, {own.mean():.0f} % with the run. Stop what else runs there (see `top`), and run again.",
        numbers={"contended_ratio": share, "others_pct": taken, "own_pct": float(own.mean()), "cores": cores},
        file=HOST_FILE,
        window=span.text,
        n=n,
        strength=min(1.0, share),
    )


def _crowded(load: float, share: float, own: float, n: int, span: WindowSpan, cores: int) -> JitterCause:
    return JitterCause(
        kind="host_load",
        text=f"The load was {load:.1f} on {cores} CPUs (median of {n} samples, {span.text}), which were at least {BUSY_PCT:.0f} % busy in "
        f"{share:.0%} of them, {own:.0f} % with the run itself. Use fewer loader workers and threads (num_workers, OMP_NUM_THREADS), or a "
        "host with more CPUs.",
        numbers={"load": load, "busy_ratio": share, "own_pct": own, "cores": cores},
        file=HOST_FILE,
        window=span.text,
        n=n,
        strength=min(1.0, 1 - cores / load),
    )


def gap_causes(samples: TelemetryTables, account: TelemetryAccount, span: WindowSpan) -> Iterator[JitterCause]:
    """A cause where a sampler missed much of the window; the worse of the two samplers. A late sampler did not get the CPU or waited for
    the driver, and most likely so did the ranks."""
    tables = {"GPU": samples.gpu, "host": samples.host}
    found = [cause for kind, sampler in samplers(account) for cause in _gaps(kind, tables[kind], sampler, span)]
    yield from sorted(found, key=lambda cause: -cause.strength)[:1]


def _gaps(kind: str, table: pl.DataFrame | None, sampler: SamplerAccount, span: WindowSpan) -> Iterator[JitterCause]:
    if table is None or sampler.interval_s <= 0:
        return
    between_s = np.diff(_sample_times(table, span))
    window_s = float(between_s.sum())
    late_s = between_s[between_s > GAP_INTERVALS * sampler.interval_s]
    lost_s = float((late_s - sampler.interval_s).sum())
    if window_s < MIN_INTERVALS * sampler.interval_s or lost_s < MIN_LOST * window_s:
        return
    lost, n = lost_s / window_s, len(between_s)
    yield JitterCause(
        kind="telemetry_gaps",
        text=f"{kind} telemetry has {count(len(late_s), 'gap')} in {span.text}, the longest {late_s.max():.1f} s at an interval of "
        f"{sampler.interval_s:g} s: {lost:.0%} of {window_s:.0f} s were not sampled (n = {n}). The host was too busy or the driver too "
        "slow: look at the kernel's log and at what else runs there.",
        numbers={"gaps": len(late_s), "longest_s": float(late_s.max()), "lost_ratio": lost, "interval_s": sampler.interval_s},
        file=(ATTEMPT_FILES.gpu_telemetry if kind == "GPU" else ATTEMPT_FILES.host_telemetry).name,
        window=span.text,
        n=n,
        strength=GAP_WEIGHT * min(1.0, lost),
    )


def _sample_times(table: pl.DataFrame, span: WindowSpan) -> Floats:
    """Times of the samples inside the window and its ends: before the first and after the last sample nothing was sampled either."""
    at = column(span.rows(table), "epoch_sec")
    ends = [end for end in (span.first_t, span.last_t) if end is not None]
    return np.sort(np.concatenate((at, ends)))
