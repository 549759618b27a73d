"""Output of `seatrial plan fit`: a line per group with observed values beside it; and the same as JSON."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.core.errors import DONE, FAILED, INCONCLUSIVE, UsageError, printable
from seatrial.core.paths import CampaignPaths
from seatrial.machine.gpu_memory import FITS, GIB, WILL_NOT, Fit, GpuMemory, gib, judge_fit, named_gpu
from seatrial.machine.gpus import read_driver, read_gpu_states
from seatrial.preflight.gpu_memory import declared_memory, memory_of, one_of_each_group
from seatrial.records.plan import SENTINEL

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.records.plan import CampaignPlan
    from seatrial.results.observed_memory import ObservedMemory


@dataclass(frozen=True, kw_only=True)
class GroupFit:
    """One line of the output."""

    group: str
    fit: Fit
    observed: ObservedMemory | None = None


def given_memory(gpu: str | None, gpu_memory_gib: float | None) -> GpuMemory | None:
    """The GPU memory by the options; None without any."""
    if gpu is not None and gpu_memory_gib is not None:
        raise UsageError("--gpu and --gpu-memory exclude each other: give one of them")
    if gpu_memory_gib is not None:
        return GpuMemory(size_bytes=round(gpu_memory_gib * GIB), source="--gpu-memory")
    return named_gpu(gpu) if gpu is not None else None


def fit_groups(plan: CampaignPlan, given: GpuMemory | None) -> list[GroupFit]:
    """Forecasts of the plan's groups, in the order of its axes."""
    gpus = () if given else read_driver().gpus
    states = (read_gpu_states(gpus) or ()) if gpus else ()
    observed = _observed(plan)
    order = {values: index for index, values in enumerate(itertools.product(*plan.axes.values()))}
    runs = one_of_each_group([spec for spec in plan.chosen if spec.mode != SENTINEL])
    rows = []
    for spec in sorted(runs, key=lambda spec: order[tuple(spec.axes.values())]):
        memory = given or declared_memory(spec.place) or memory_of(spec, {**os.environ, **spec.env}, gpus, states)
        rows.append(GroupFit(group=spec.group, fit=judge_fit(spec, memory), observed=observed.get(spec.group)))
    return rows


def _observed(plan: CampaignPlan) -> Mapping[str, ObservedMemory]:
    from seatrial.results.gather import can_measure

    paths = CampaignPaths(Path(plan.output))
    if not paths.folder.is_dir() or not can_measure():
        return {}
    from seatrial.results.observed_memory import observed_memory

    return observed_memory(paths, plan)


def print_fits(console: Console, rows: Sequence[GroupFit]) -> None:
    for row in rows:
        console.print(printable(f"{row.group}: {row.fit.text}"), style="" if row.fit.verdict == FITS else "yellow")
        for note in row.fit.forecast.notes if row.fit.forecast and row.fit.forecast.parts else ():
            console.print(f"  {note}")
        if row.observed:
            console.print(f"  {observed_text(row.fit, row.observed)}")
    if any(row.fit.forecast and row.fit.forecast.parts for row in rows):
        console.print("allowances: 0.5 GiB CUDA context, 0.5 GiB NCCL with more than one rank, 3 % fragmentation", style="dim")


def observed_text(fit: Fit, observed: ObservedMemory) -> str:
    forecast = fit.forecast
    pairs = (
        ("allocated by torch", observed.allocated_bytes, forecast.allocated_bytes if forecast else 0),
        ("in use on the GPU", observed.in_use_bytes, forecast.total_bytes if forecast else 0),
    )
    return "observed: " + ", ".join(
        f"{gib(seen)} GiB {what}{f' (forecast {expected / seen - 1:+.0%})' if expected and seen else ''}"
        for what, seen, expected in pairs
        if seen is not None
    )


def exit_code(rows: Sequence[GroupFit]) -> int:
    verdicts = {row.fit.verdict for row in rows}
    return FAILED if WILL_NOT in verdicts else DONE if verdicts <= {FITS} else INCONCLUSIVE


def as_json(rows: Sequence[GroupFit]) -> dict[str, object]:
    return {"groups": [_row_json(row) for row in rows], "exit_code": exit_code(rows)}


def _row_json(row: GroupFit) -> dict[str, object]:
    fit, forecast, observed = row.fit, row.fit.forecast, row.observed
    return {
        "group": row.group,
        "ranks": fit.spec.place.ranks,
        "verdict": fit.verdict,
        "reason": fit.reason or None,
        "parts_bytes": dict(forecast.parts) if forecast else None,
        "saved_bytes": dict(forecast.saved) if forecast else None,
        "moment": forecast.moment if forecast else None,
        "notes": list(forecast.notes) if forecast else [],
        "allocated_bytes": forecast.allocated_bytes if forecast else None,
        "least_allocated_bytes": forecast.least_allocated_bytes if forecast else None,
        "allowance_bytes": forecast.allowance_bytes if forecast else None,
        "total_bytes": forecast.total_bytes if forecast else None,
        "gpu_memory_bytes": fit.memory.size_bytes if fit.memory else None,
        "gpu": fit.memory.source if fit.memory else None,
        "remedies": [
            {"settings": remedy.settings, "ranks": remedy.world_size, "total_bytes": remedy.total_bytes} for remedy in fit.remedies
        ],
        "observed_allocated_bytes": observed.allocated_bytes if observed else None,
        "observed_in_use_bytes": observed.in_use_bytes if observed else None,
    }
