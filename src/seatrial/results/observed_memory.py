"""Observed GPU memory of a campaign's runs, to compare forecasts with. In: a campaign's folder and its plan. Out: the peaks of each group,
over its current runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.attempts import read_campaign
from seatrial.collect.events import events_of_kind
from seatrial.collect.telemetry import read_telemetry
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.core.text import MIB
from seatrial.records.attempt import Attempt
from seatrial.records.plan import CampaignPlan
from seatrial.records.stored import host_folders


@dataclass(frozen=True, kw_only=True)
class ObservedMemory:
    """The highest values of any rank and GPU; None where nothing was recorded."""

    allocated_bytes: int | None = None
    """Reported by torch's allocator (`peak_mib` of events)."""
    in_use_bytes: int | None = None
    """Reported by the driver, all processes together (gpu_telemetry.csv)."""


def observed_memory(paths: CampaignPaths, plan: CampaignPlan) -> dict[str, ObservedMemory]:
    """Group → its peaks, of runs with the plan's current settings only."""
    hashes = {spec.hash for spec in plan.runs}
    groups: dict[str, list[Attempt]] = {}
    for attempt in read_campaign(paths) if paths.folder.is_dir() else ():
        if attempt.current and attempt.spec.hash in hashes:
            groups.setdefault(attempt.spec.group, []).append(attempt)
    found = {
        group: ObservedMemory(
            allocated_bytes=_most(peak for attempt in attempts for peak in _allocated_mib(attempt)),
            in_use_bytes=_most(peak for attempt in attempts for peak in _in_use_mib(attempt)),
        )
        for group, attempts in groups.items()
    }
    return {group: peaks for group, peaks in found.items() if peaks != ObservedMemory()}


def _allocated_mib(attempt: Attempt) -> Iterator[float]:
    for folder in host_folders(AttemptPaths(Path(attempt.folder)), attempt.nodes):
        for path in folder.paths.all_events():
            for event in events_of_kind("memory", path, attempt):
                peak = event.get("peak_mib")
                if isinstance(peak, (int, float)) and not isinstance(peak, bool):
                    yield float(peak)


def _in_use_mib(attempt: Attempt) -> Iterator[float]:
    table = read_telemetry(attempt).gpu
    most = None if table is None or "mem_used_mib" not in table.columns else table["mem_used_mib"].max()
    if isinstance(most, (int, float)):
        yield float(most)


def _most(sizes_mib: Iterator[float]) -> int | None:
    most = max(sizes_mib, default=None)
    return None if most is None else round(most * MIB)
