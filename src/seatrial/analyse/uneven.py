"""Why a run's steps are uneven, or slower than they could be.

In: its step tables, the machine's samples with the samplers' account, the measured window with its wall clock, and the rank that
holds the others up, where there is one. Out: `UnevenCause`s, the strongest evidence first; none of a healthy run. A cause is named
only where enough was seen and it is beyond a bound that is said beside it: what was not sampled is no cause, and no proof of health.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from seatrial.analyse.hosts import of_hosts, strongest
from seatrial.analyse.uneven_data import data_causes
from seatrial.analyse.uneven_gaps import gap_causes
from seatrial.analyse.uneven_gpus import gpu_causes
from seatrial.analyse.uneven_host import host_causes
from seatrial.analyse.uneven_span import Span
from seatrial.paths import ATTEMPT_FILES, EVENTS_OF_ALL_RANKS
from seatrial.records.health import Straggler, StragglerVerdict, UnevenCause
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import TelemetryAccount, TelemetryTables

PHASE_ADVICE = {
    "data_wait": "Look at the loader and the storage of its host",
    "preprocess": "Look at the load of its host and at what it preprocesses",
    "fwd": "Look at its GPU's clocks and at the load of its host",
    "bwd": "Look at its GPU's clocks and at its links to the others",
    "step": "Look at its GPU's clocks and at what it alone does after a step: logs, checkpoints",
}
ADVICE = "Look at its GPU's clocks, its link and the load of its host"


def uneven_causes(
    tables: StepTables,
    samples: TelemetryTables,
    account: TelemetryAccount | None,
    window: Window | None,
    first_t: float | None,
    last_t: float | None,
    straggler: Straggler | None,
    *,
    cores: Mapping[str, int] | int | None = None,
    others: Mapping[str, TelemetryAccount] | None = None,
) -> tuple[UnevenCause, ...]:
    """Every cause that was seen. `cores` are the host's processors, or each host's: without them nobody can say whose load it carries.
    `others` are accounts of the hosts beside node 0."""
    begins_t = first_t if first_t is not None or window is None else _begins_t(tables, window)
    span = Span(first_t=begins_t, last_t=last_t, window=window)
    found = [*data_causes(tables, span), *_slow_rank(straggler, tables)]
    if samples.gpu is not None:
        found.extend(gpu_causes(samples.gpu, span, tables.world_size, samples.hosts))
    own = of_hosts(samples.host, samples.hosts)
    found.extend(strongest((host, cause) for host, rows in own for cause in host_causes(rows, span, _cores(cores, host))))
    found.extend(strongest(_gaps(samples, account, others or {}, span)))
    return tuple(sorted(found, key=lambda cause: -cause.strength))


def _cores(cores: Mapping[str, int] | int | None, host: str) -> int | None:
    return cores.get(host) if isinstance(cores, Mapping) else cores


def _gaps(
    samples: TelemetryTables, account: TelemetryAccount | None, others: Mapping[str, TelemetryAccount], span: Span
) -> Iterator[tuple[str, UnevenCause]]:
    first = samples.hosts[0] if samples.hosts else ""
    accounts = {**({first: account} if account is not None else {}), **others}
    gpu, host = dict(of_hosts(samples.gpu, samples.hosts)), dict(of_hosts(samples.host, samples.hosts))
    for name, told in accounts.items():
        own = TelemetryTables(gpu=gpu.get(name), host=host.get(name))
        yield from ((name, cause) for cause in gap_causes(own, told, span))


def _begins_t(tables: StepTables, window: Window) -> float | None:
    """When a window that has no step before it begins: samples of the start-up are none of its steps'."""
    rows = tables.steps.head(1)
    if rows.is_empty() or rows["step"][0] < window.first_step:
        return None
    ends_t, iter_ms = rows["t"][0], rows["iter_ms"][0]
    begins_t = math.nan if ends_t is None or iter_ms is None else ends_t - rows["span"][0] * iter_ms / 1000
    return begins_t if math.isfinite(begins_t) else None


def _slow_rank(straggler: Straggler | None, tables: StepTables) -> Iterator[UnevenCause]:
    if straggler is None or straggler.verdict is not StragglerVerdict.NAMED or straggler.score is None:
        return
    phase = straggler.phase.removesuffix("_ms")
    steps = "the whole run" if straggler.first_step is None else f"steps {straggler.first_step} to {straggler.last_step}"
    costs = "" if straggler.held_up_ms is None else f", which holds every step up by {straggler.held_up_ms:.3g} ms in the median"
    if straggler.slow_host:
        yield _slow_host(straggler, phase, steps, costs, tables)
        return
    yield UnevenCause(
        kind="slow_rank",
        text=f"Rank {straggler.rank}{_where(straggler)} takes {straggler.score:.0%} longer than the others"
        f"{f' in {phase}' if phase else ''}{costs} ({steps}, n = {straggler.n}). {PHASE_ADVICE.get(phase, ADVICE)}.",
        numbers={"rank": straggler.rank, "score": straggler.score, "phase": phase, "held_up_ms": straggler.held_up_ms},
        file=EVENTS_OF_ALL_RANKS if tables.source == "events" else ATTEMPT_FILES.launcher_log.name,
        window=steps,
        n=straggler.n,
        strength=straggler.score / (1 + straggler.score),
    )


def _slow_host(straggler: Straggler, phase: str, steps: str, costs: str, tables: StepTables) -> UnevenCause:
    score = straggler.score or 0.0
    return UnevenCause(
        kind="slow_host",
        text=f"All {straggler.slow_host_ranks} ranks of host {straggler.slow_host} are slow together, and none of any other host's: rank "
        f"{straggler.rank} takes {score:.0%} longer than the others{f' in {phase}' if phase else ''}{costs} ({steps}, n = {straggler.n}). "
        "What the host's ranks share is the cause before any one rank is: its processors, clocks, power, cooling, storage, or another "
        "job on it; compare its rows in the table of hosts.",
        numbers={
            "host": straggler.slow_host,
            "ranks": straggler.slow_host_ranks,
            "rank": straggler.rank,
            "score": straggler.score,
            "phase": phase,
            "held_up_ms": straggler.held_up_ms,
        },
        file=EVENTS_OF_ALL_RANKS if tables.source == "events" else ATTEMPT_FILES.launcher_log.name,
        window=steps,
        n=straggler.n,
        strength=score / (1 + score),
    )


def _where(straggler: Straggler) -> str:
    told = [word for word in (f"GPU {straggler.gpu}" if straggler.gpu else "", straggler.host) if word]
    return f" ({' on '.join(told)})" if told else ""
