"""Telemetry of a run in figures: what the machine did while the run was measured.

In: the telemetry of an attempt, the samplers' account and the wall-clock range of the measured window (the whole run where unknown). Out:
cells for TELEMETRY_FIGURES, one `HostMeasure` for each of many hosts, and cautions. Means are over all samples of all GPUs and hosts in the
window, peaks are the highest of any; energy is the sum of all GPUs. A figure without samples is None.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.core.text import KIB_PER_MIB, count
from seatrial.records.attempt import StepTables
from seatrial.records.caution import Caution, Scalar
from seatrial.records.columns import TELEMETRY_FIGURES
from seatrial.records.measure import HostMeasure, JitterCause, Window
from seatrial.records.telemetry import GPUS_A_HOST, HOST_INDEX, SamplerAccount, TelemetryAccount, TelemetryTables

Floats = npt.NDArray[np.float64]
MIN_COVERED = 0.9
"""Energy is given only where samples cover this share of the window; the rest is extrapolated."""
SETTINGS = frozenset({"applications_clocks_setting", "display_clock_setting"})
"""Reasons for low clocks that were set on purpose, which is not throttling."""
THROTTLED_PCT = 5.0
"""If more of the samples were throttled, the figures are those of a slower GPU."""
AT_THE_LIMIT = "sw_power_cap"
"""The only reason that a healthy GPU has too."""
STEAL_PCT = 5.0
"""Share of CPU time taken by the hypervisor that exceeds most differences between groups."""


@dataclass(frozen=True, kw_only=True)
class WindowSpan:
    """The measured window on the wall clock: from the end of the step before it to the end of its last; the whole run where unknown."""

    first_t: float | None = None
    last_t: float | None = None
    window: Window | None = None
    samples: float | None = None
    """Training samples that all ranks processed in it."""

    @property
    def text(self) -> str:
        """'steps 20 to 399', or 'the whole run'."""
        return f"steps {self.window.first_step} to {self.window.last_step}" if self.window else "the whole run"

    def mask(self, at: Floats) -> npt.NDArray[np.bool_]:
        first = -np.inf if self.first_t is None else self.first_t
        last = np.inf if self.last_t is None else self.last_t
        return np.asarray((at >= first) & (at <= last))

    def rows(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows inside, of a table sorted by time; a slice, which copies nothing."""
        at = column(table, "epoch_sec")
        first = 0 if self.first_t is None else int(np.searchsorted(at, self.first_t))
        last = len(at) if self.last_t is None else int(np.searchsorted(at, self.last_t, side="right"))
        return table.slice(first, max(0, last - first))


def telemetry_figures(
    tables: TelemetryTables, account: TelemetryAccount | None, span: WindowSpan, others: Mapping[str, TelemetryAccount] | None = None
) -> dict[str, Scalar]:
    """Every column of TELEMETRY_FIGURES; {} where nothing was sampled and no sampler was configured. `others` are the accounts of the hosts
    other than node 0."""
    if account is None and tables.gpu is None and tables.host is None:
        return {}
    notes = [f"{kind}: {sampler.note}" for kind, sampler in samplers(account) if sampler.note]
    cells: dict[str, Scalar] = dict.fromkeys(TELEMETRY_FIGURES)
    if tables.gpu is not None:
        cells.update(_gpu_cells(tables.gpu, span, account.gpu if account else None, notes))
        energy_j = cells["gpu_energy_j"]
        if isinstance(energy_j, float) and span.samples:
            cells["gpu_joules_per_sample"] = energy_j / span.samples
    if tables.host is not None:
        cells.update(_host_cells(tables.host, span, notes))
    cells.update(_sampler_cells([*([account] if account else []), *(others or {}).values()]))
    return cells | {"telemetry_note": "; ".join(notes) or None}


def _gpu_cells(table: pl.DataFrame, span: WindowSpan, account: SamplerAccount | None, notes: list[str]) -> dict[str, Scalar]:
    inside = span.mask(column(table, "epoch_sec"))
    if not inside.any():
        notes.append("no GPU sample fell into the measured window")
        return {}
    util, power, temp, clock, used, foreign = (
        column(table, name)[inside]
        for name in ("util_gpu_pct", "power_w", "temp_c", "sm_clock_mhz", "mem_used_mib", "foreign_process_count")
    )
    foreign_max = _most(foreign)
    known = account is None or "throttle_reasons" not in account.missing
    return {
        "gpu_util_mean_pct": finite_mean(util),
        "gpu_power_mean_w": finite_mean(power),
        "gpu_power_max_w": _most(power),
        "gpu_energy_j": _energy_j(table, span, notes),
        "gpu_temp_max_c": _most(temp),
        "gpu_sm_clock_mean_mhz": finite_mean(clock),
        "gpu_mem_peak_mib": _most(used),
        "gpu_foreign_process_max": None if foreign_max is None else int(foreign_max),
        **(_throttle_cells(table, inside) if known and "throttle_reasons" in table.columns else {}),
    }


def _throttle_cells(table: pl.DataFrame, inside: npt.NDArray[np.bool_]) -> dict[str, Scalar]:
    texts = [text for text, counts in zip(table["throttle_reasons"].to_list(), inside.tolist(), strict=True) if text and counts]
    reasons = [[reason for reason in text.split("+") if reason not in SETTINGS] for text in texts]
    throttled = sum(map(bool, reasons))
    often = Counter(reason for each in reasons for reason in each)
    return {
        "gpu_throttled_pct": 100 * throttled / int(inside.sum()),
        "gpu_throttle_reasons": "+".join(reason for reason, _ in often.most_common()),
    }


def _energy_j(table: pl.DataFrame, span: WindowSpan, notes: list[str]) -> float | None:
    """Energy of all GPUs over the span: from the counter where every GPU has one, else power over time."""
    at, gpu = column(table, "epoch_sec"), column(table, "gpu_index")
    energy_j, power_w = column(table, "energy_j"), column(table, "power_w")
    each = [gpu == index for index in np.unique(gpu)]
    counted = _sum([_used(at[own], energy_j[own], span) for own in each])
    # A counter that does not move under power does not count.
    if counted or (counted is not None and not (power_w > 0).any()):
        return counted
    integrated = _sum([_used(at[own], _integral(at[own], power_w[own]), span) for own in each])
    if integrated is not None:
        notes.append("energy is power integrated over time, since the driver's counter does not cover the window")
    elif not np.isnan(power_w).all():
        notes.append(f"energy is unknown: the samples cover less than {MIN_COVERED:.0%} of the window")
    return integrated


def _used(at: Floats, total: Floats, span: WindowSpan) -> float | None:
    """Growth of a running total over the span; extrapolated beyond the samples."""
    known = ~np.isnan(total)
    at, total = at[known], total[known]
    if len(at) < 2 or (np.diff(total) < 0).any():
        return None
    first = at[0] if span.first_t is None else span.first_t
    last = at[-1] if span.last_t is None else span.last_t
    begin, end = max(first, at[0]), min(last, at[-1])
    if last <= first or (end - begin) < MIN_COVERED * (last - first):
        return None
    grown = np.interp(end, at, total) - np.interp(begin, at, total)
    return float(grown * (last - first) / (end - begin))


def _integral(at: Floats, power_w: Floats) -> Floats:
    """Energy since the first sample; NaN where power is unknown."""
    known = ~np.isnan(power_w)
    energy = np.full(len(at), np.nan)
    if known.any():
        times, power = at[known], power_w[known]
        energy[known] = np.concatenate(([0.0], np.cumsum((power[1:] + power[:-1]) / 2 * np.diff(times))))
    return energy


def _host_cells(table: pl.DataFrame, span: WindowSpan, notes: list[str]) -> dict[str, Scalar]:
    inside = span.mask(column(table, "epoch_sec"))
    if not inside.any():
        notes.append("no host sample fell into the measured window")
        return {}
    rss, available, user, system, steal = (
        column(table, name)[inside] for name in ("rss_kib", "mem_available_kib", "cpu_user_pct", "cpu_system_pct", "cpu_steal_pct")
    )
    known_available = finite(available)
    return {
        "host_rss_peak_mib": _mib(_most(rss)),
        "host_cpu_busy_mean_pct": finite_mean(user + system),
        "host_cpu_steal_mean_pct": finite_mean(steal),
        "host_mem_available_min_mib": _mib(float(known_available.min()) if len(known_available) else None),
    }


def _sampler_cells(accounts: Sequence[TelemetryAccount]) -> dict[str, Scalar]:
    """Counts over all hosts, and the sampling cost of the costliest host."""
    if not accounts:
        return {}
    by_host = [[sampler for _, sampler in samplers(account)] for account in accounts]
    return {
        "telemetry_gaps": sum(sampler.gaps for own in by_host for sampler in own),
        "telemetry_invalid": sum(sampler.invalid for own in by_host for sampler in own),
        "telemetry_cpu_pct": max(sum(100 * one.cpu_s / one.wall_s for one in own if one.wall_s > 0) for own in by_host),
    }


def samplers(account: TelemetryAccount | None) -> list[tuple[str, SamplerAccount]]:
    """The samplers that were configured, with their names."""
    return [(kind, sampler) for kind, sampler in (("GPU", account.gpu), ("host", account.host)) if sampler] if account else []


def _most(values: Floats) -> float | None:
    known = finite(values)
    return float(known.max()) if len(known) else None


def _sum(values: list[float | None]) -> float | None:
    """None where one of them is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def telemetry_cautions(
    figures: dict[str, Scalar], account: TelemetryAccount | None, run: str, others: Mapping[str, TelemetryAccount] | None = None
) -> Iterator[Caution]:
    """Faults of the telemetry, then faults that the telemetry shows."""
    for kind, sampler in samplers(account):
        yield from _sampler_cautions(kind, sampler, run)
    yield from _other_host_cautions(others or {}, run)
    yield from _figure_cautions(figures, run)


def _other_host_cautions(others: Mapping[str, TelemetryAccount], run: str) -> Iterator[Caution]:
    """One caution of each kind, from the first host that has it, with how many more have it."""
    found: dict[str, list[tuple[str, Caution]]] = {}
    for host, account in others.items():
        for kind, sampler in samplers(account):
            for caution in _sampler_cautions(kind, sampler, run):
                found.setdefault(caution.kind, []).append((host, caution))
    for shown in found.values():
        host, first = shown[0]
        more = f" The same holds for {len(shown) - 1} more samplers of other hosts." if len(shown) > 1 else ""
        yield replace(first, text=f"Host {host}: {first.text}{more}", numbers={**first.numbers, "host": host, "times": len(shown)})


def _sampler_cautions(kind: str, sampler: SamplerAccount, run: str) -> Iterator[Caution]:
    if sampler.stopped_t is not None:
        yield Caution(
            kind="telemetry_stopped",
            subject=run,
            numbers={"rows": sampler.rows, "t": sampler.stopped_t},
            text=f"The {kind} sampler stopped getting answers ({sampler.note}): look at the kernel's log for driver errors.",
        )
    elif sampler.empty and not sampler.expected:
        yield Caution(
            kind="telemetry_empty",
            subject=run,
            numbers={"samples": sampler.samples},
            text=f"{kind} telemetry of this run is missing: {sampler.note or 'reason unknown'}.",
        )
    elif sampler.note and not sampler.expected and not sampler.invalid:
        yield Caution(kind="telemetry_amiss", subject=run, text=f"{kind} telemetry is incomplete: {sampler.note}.")
    if sampler.gaps:
        yield Caution(
            kind="telemetry_gaps",
            subject=run,
            numbers={"gaps": sampler.gaps, "longest_s": sampler.longest_gap_s, "interval_s": sampler.interval_s},
            text=f"{kind} telemetry has {count(sampler.gaps, 'gap')}, the longest {sampler.longest_gap_s:.1f} s at an interval of "
            f"{sampler.interval_s:g} s: the host was too busy, or the driver too slow.",
        )
    if sampler.invalid:
        yield Caution(
            kind="telemetry_invalid",
            subject=run,
            numbers={"invalid": sampler.invalid, "rows": sampler.rows},
            text=f"{sampler.invalid} {kind} samples had impossible values and were left out ({sampler.note}).",
        )


def _figure_cautions(figures: dict[str, Scalar], run: str) -> Iterator[Caution]:
    throttled, foreign, steal = (figures.get(name) for name in ("gpu_throttled_pct", "gpu_foreign_process_max", "host_cpu_steal_mean_pct"))
    if isinstance(throttled, float) and throttled > THROTTLED_PCT:
        reasons = str(figures.get("gpu_throttle_reasons") or "")
        advice = "compare only with runs throttled the same way, and check cooling and power supply"
        if reasons == AT_THE_LIMIT:
            advice = "they ran at their power limit, as under heavy load; compare only with runs under the same limit"
        yield Caution(
            kind="gpu_throttled",
            subject=run,
            numbers={"throttled_pct": round(throttled, 1), "reasons": reasons},
            text=f"The GPUs were throttled in {throttled:.0f} % of the samples ({reasons}): {advice}.",
        )
    if isinstance(foreign, int) and foreign > 0:
        yield Caution(
            kind="gpu_shared",
            subject=run,
            numbers={"processes": foreign},
            text=f"{foreign} other {'process' if foreign == 1 else 'processes'} used this run's GPUs: run again with the GPUs to yourself.",
        )
    if isinstance(steal, float) and steal > STEAL_PCT:
        yield Caution(
            kind="cpu_stolen",
            subject=run,
            numbers={"steal_pct": round(steal, 1)},
            text=f"The hypervisor took {steal:.0f} % of the CPU time (steal), so timings depend on other guests: use a dedicated host, or "
            "more repeats.",
        )


def host_measures(samples: TelemetryTables, span: WindowSpan) -> tuple[HostMeasure, ...]:
    """Figures by node rank; none for a run on one host, whose figures are the run's. Network traffic is the whole host's: it does not show
    whose link is slow, since all ranks end an exchange together."""
    if not samples.hosts:
        return ()
    host, gpu = dict(tables_by_host(samples.host, samples.hosts)), dict(tables_by_host(samples.gpu, samples.hosts))
    return tuple(_measure(name, host.get(name), gpu.get(name), span) for name in samples.hosts if name in host or name in gpu)


def _measure(name: str, host: pl.DataFrame | None, gpu: pl.DataFrame | None, span: WindowSpan) -> HostMeasure:
    cards = 0 if gpu is None else len(np.unique(column(gpu, "gpu_index")))
    util = None if gpu is None else finite_mean(column(span.rows(gpu), "util_gpu_pct"))
    if host is None:
        return HostMeasure(host=name, gpus=cards, gpu_util_mean_pct=util)
    rows = span.rows(host)
    rss, rx, tx = (column(rows, column_name) for column_name in ("rss_kib", "net_rx_kib_per_s", "net_tx_kib_per_s"))
    return HostMeasure(
        host=name,
        gpus=cards,
        cpu_busy_mean_pct=finite_mean(column(rows, "cpu_user_pct") + column(rows, "cpu_system_pct")),
        rss_peak_mib=_mib(float(np.nanmax(rss)) if np.isfinite(rss).any() else None),
        net_rx_mean_mib_per_s=_mib(finite_mean(rx)),
        net_tx_mean_mib_per_s=_mib(finite_mean(tx)),
        gpu_util_mean_pct=util,
        n=len(rows),
    )


def _mib(kib: float | None) -> float | None:
    return None if kib is None else kib / KIB_PER_MIB


def window_span(tables: StepTables, window: Window | None) -> WindowSpan:
    """The window on the wall clock, from the first rank's steps, including pauses."""
    if window is None:
        return WindowSpan()
    step, rank, t, done, span = (tables.steps[name].to_numpy() for name in ("step", "rank", "t", "samples", "span"))
    own = rank == rank[0]
    before, inside = own & (step < window.first_step), own & (step >= window.first_step) & (step <= window.last_step)
    samples = float((done * span)[inside].sum()) * tables.world_size
    return WindowSpan(
        first_t=_finite_or_none(np.nanmax(t[before], initial=-np.inf)),
        last_t=_finite_or_none(np.nanmax(t[inside], initial=-np.inf)),
        window=window,
        samples=samples if np.isfinite(samples) and samples > 0 else None,
    )


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def gpu_name(index: float, hosts: Sequence[str]) -> int | str:
    """The GPU's number, on many hosts `node2:0`."""
    host, own = divmod(int(index), GPUS_A_HOST)
    return f"{hosts[host]}:{own}" if host < len(hosts) else int(index)


def tables_by_host(table: pl.DataFrame | None, hosts: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """(host, its rows) of a table of hosts or GPUs; for one host the unchanged table under an empty name."""
    if table is None or table.is_empty():
        return
    if not hosts:
        yield "", table
        return
    own = column(table, HOST_INDEX) if HOST_INDEX in table.columns else np.floor(column(table, "gpu_index") / GPUS_A_HOST)
    for at, name in enumerate(hosts):
        rows = np.flatnonzero(own == at)
        if len(rows):
            yield name, table[rows]


def strongest_by_kind(found: Iterable[tuple[str, JitterCause]]) -> Iterator[JitterCause]:
    """The strongest cause of each kind, with its host and how many others show it: sixty hosts are not sixty causes."""
    kinds: dict[str, list[tuple[str, JitterCause]]] = defaultdict(list)
    for host, cause in found:
        kinds[cause.kind].append((host, cause))
    for shown in kinds.values():
        host, worst = max(shown, key=lambda pair: pair[1].strength)
        if not host:
            yield worst
            continue
        also = f" {count(len(shown) - 1, 'more host')} {'shows' if len(shown) == 2 else 'show'} the same." if len(shown) > 1 else ""
        yield replace(worst, text=f"Host {host}: {worst.text}{also}", numbers={**worst.numbers, "host": host, "hosts": len(shown)})


def column(table: pl.DataFrame, name: str) -> npt.NDArray[np.float64]:
    """A column as floats, NaN where a cell is empty or not a number; all NaN without the column."""
    found: pl.Series | None = table.get_column(name, default=None)
    if found is None:
        return np.full(len(table), np.nan)
    return found.to_numpy() if found.dtype == pl.Float64 else found.cast(pl.Float64, strict=False).to_numpy()


def finite(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A damaged cell may hold an infinity."""
    return values[np.isfinite(values)]


def finite_mean(values: npt.NDArray[np.float64]) -> float | None:
    """The mean of the finite values; None where there are none."""
    known = finite(values)
    return float(known.mean()) if len(known) else None
