"""What the machine did while a run was measured.

In: the samples of an attempt, the samplers' account, the wall-clock range of the measured window (the whole run where it is not
known) and the samples the workload went through in it. Out: cells for TELEMETRY_FIGURES. Means are plain, over all
samples of all GPUs and hosts in the window, peaks those of the highest; energy is of all GPUs together. A figure without samples is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.column import column, known, known_mean
from seatrial.records.columns import TELEMETRY_FIGURES
from seatrial.records.measure import Cell
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables
from seatrial.units import KIB_PER_MIB

Numbers = npt.NDArray[np.float64]

LEAST_COVERED = 0.9
"""Energy is given only where samples cover this much of the window; the rest is taken to be like it."""
SETTINGS = frozenset({"applications_clocks_setting", "display_clock_setting"})
"""Reasons for low clocks that somebody chose: no throttling."""


@dataclass(frozen=True)
class _Range:
    """A span of wall-clock time; open where a side is None."""

    first_t: float | None
    last_t: float | None

    def mask(self, at: Numbers) -> npt.NDArray[np.bool_]:
        first = -np.inf if self.first_t is None else self.first_t
        last = np.inf if self.last_t is None else self.last_t
        return np.asarray((at >= first) & (at <= last))


def telemetry_figures(
    tables: TelemetryTables,
    account: TelemetryAccount | None,
    first_t: float | None,
    last_t: float | None,
    samples: float | None,
    others: Mapping[str, TelemetryAccount] | None = None,
) -> dict[str, Cell]:
    """Every column of TELEMETRY_FIGURES; {} where nothing was sampled and nobody was asked to. `others` are accounts of the hosts beside
    node 0."""
    if account is None and tables.gpu is None and tables.host is None:
        return {}
    span, notes = _Range(first_t, last_t), _account_notes(account)
    cells: dict[str, Cell] = dict.fromkeys(TELEMETRY_FIGURES)
    if tables.gpu is not None:
        cells.update(_gpu_cells(tables.gpu, span, account.gpu if account else None, notes))
        energy_j = cells["gpu_energy_j"]
        if isinstance(energy_j, float) and samples:
            cells["gpu_joules_per_sample"] = energy_j / samples
    if tables.host is not None:
        cells.update(_host_cells(tables.host, span, notes))
    cells.update(_own_cells([account, *(others or {}).values()] if account else list((others or {}).values())))
    return cells | {"telemetry_note": "; ".join(notes) or None}


def _gpu_cells(table: pl.DataFrame, span: _Range, account: SamplerAccount | None, notes: list[str]) -> dict[str, Cell]:
    inside = span.mask(column(table, "epoch_sec"))
    if not inside.any():
        notes.append("no GPU sample fell into the measured window")
        return {}
    util, power, temp, clock, used, foreign = (
        column(table, name)[inside]
        for name in ("util_gpu_pct", "power_w", "temp_c", "sm_clock_mhz", "mem_used_mib", "foreign_process_count")
    )
    told = account is None or "throttle_reasons" not in account.missing
    return {
        "gpu_util_mean_pct": known_mean(util),
        "gpu_power_mean_w": known_mean(power),
        "gpu_power_max_w": _most(power),
        "gpu_energy_j": _energy_j(table, span, notes),
        "gpu_temp_max_c": _most(temp),
        "gpu_sm_clock_mean_mhz": known_mean(clock),
        "gpu_mem_peak_mib": _most(used),
        "gpu_foreign_process_max": _whole(_most(foreign)),
        **(_throttle_cells(table, inside) if told and "throttle_reasons" in table.columns else {}),
    }


def _throttle_cells(table: pl.DataFrame, inside: npt.NDArray[np.bool_]) -> dict[str, Cell]:
    texts = [text for text, counts in zip(table["throttle_reasons"].to_list(), inside.tolist(), strict=True) if text and counts]
    reasons = [[word for word in text.split("+") if word not in SETTINGS] for text in texts]
    held = sum(map(bool, reasons))
    often = Counter(word for words in reasons for word in words)
    return {"gpu_throttled_pct": 100 * held / int(inside.sum()), "gpu_throttle_reasons": "+".join(word for word, _ in often.most_common())}


def _energy_j(table: pl.DataFrame, span: _Range, notes: list[str]) -> float | None:
    """Of all GPUs over the span: by the counter where every GPU has one, else by power over time."""
    at, gpu = column(table, "epoch_sec"), column(table, "gpu_index")
    energy_j, power_w = column(table, "energy_j"), column(table, "power_w")
    each = [gpu == index for index in np.unique(gpu)]
    counted = _sum([_used(at[own], energy_j[own], span) for own in each])
    # A counter that stands still under power does not count.
    if counted or (counted is not None and not (power_w > 0).any()):
        return counted
    integrated = _sum([_used(at[own], _integral(at[own], power_w[own]), span) for own in each])
    if integrated is not None:
        notes.append("energy is power over time, since the driver's counter does not cover the window")
    elif not np.isnan(power_w).all():
        notes.append(f"energy is not told: the samples cover less than {LEAST_COVERED:.0%} of the window")
    return integrated


def _used(at: Numbers, total: Numbers, span: _Range) -> float | None:
    """How much a growing total grew over the span; what lies beyond the samples is taken to be like the rest."""
    told = ~np.isnan(total)
    at, total = at[told], total[told]
    if len(at) < 2 or (np.diff(total) < 0).any():
        return None
    first = at[0] if span.first_t is None else span.first_t
    last = at[-1] if span.last_t is None else span.last_t
    begin, end = max(first, at[0]), min(last, at[-1])
    if last <= first or (end - begin) < LEAST_COVERED * (last - first):
        return None
    grown = np.interp(end, at, total) - np.interp(begin, at, total)
    return float(grown * (last - first) / (end - begin))


def _integral(at: Numbers, power_w: Numbers) -> Numbers:
    """Energy since the first sample; NaN where power is not known."""
    told = ~np.isnan(power_w)
    energy = np.full(len(at), np.nan)
    if told.any():
        times, power = at[told], power_w[told]
        energy[told] = np.concatenate(([0.0], np.cumsum((power[1:] + power[:-1]) / 2 * np.diff(times))))
    return energy


def _host_cells(table: pl.DataFrame, span: _Range, notes: list[str]) -> dict[str, Cell]:
    inside = span.mask(column(table, "epoch_sec"))
    if not inside.any():
        notes.append("no host sample fell into the measured window")
        return {}
    rss, available, user, system, steal = (
        column(table, name)[inside] for name in ("rss_kib", "mem_available_kib", "cpu_user_pct", "cpu_system_pct", "cpu_steal_pct")
    )
    rss_kib, available_kib = _most(rss), _least(available)
    return {
        "host_rss_peak_mib": None if rss_kib is None else rss_kib / KIB_PER_MIB,
        "host_cpu_busy_mean_pct": known_mean(user + system),
        "host_cpu_steal_mean_pct": known_mean(steal),
        "host_mem_available_min_mib": None if available_kib is None else available_kib / KIB_PER_MIB,
    }


def _own_cells(accounts: Sequence[TelemetryAccount]) -> dict[str, Cell]:
    """Counts of all hosts; the cost is that of the host that it cost most."""
    if not accounts:
        return {}
    asked = [[sampler for _, sampler in samplers(account)] for account in accounts]
    return {
        "telemetry_gaps": sum(sampler.gaps for own in asked for sampler in own),
        "telemetry_invalid": sum(sampler.invalid for own in asked for sampler in own),
        "telemetry_cpu_pct": max(sum(100 * one.cpu_s / one.wall_s for one in own if one.wall_s > 0) for own in asked),
    }


def _account_notes(account: TelemetryAccount | None) -> list[str]:
    if account is None:
        return []
    return [f"{kind}: {sampler.note}" for kind, sampler in samplers(account) if sampler.note]


def samplers(account: TelemetryAccount) -> list[tuple[str, SamplerAccount]]:
    """Those that were asked for, each with its word."""
    return [(kind, sampler) for kind, sampler in (("GPU", account.gpu), ("host", account.host)) if sampler]


def _most(values: Numbers) -> float | None:
    told = known(values)
    return float(told.max()) if len(told) else None


def _least(values: Numbers) -> float | None:
    told = known(values)
    return float(told.min()) if len(told) else None


def _sum(values: list[float | None]) -> float | None:
    """None where one of them is not known."""
    told = [value for value in values if value is not None]
    return sum(told) if len(told) == len(values) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
