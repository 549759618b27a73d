"""Host memory of a run for the leak diagnosis.

In: host_telemetry.csv in one of three layouts, of the run itself or of the whole campaign: the driver's (`rss_kib`), the hand-made
sampler's (`train_proc_count`, `train_rss_kib`), and ours, which has the columns of both. Out: how the resident memory of the run's
processes grew, and in words which file and layout that is from, or why there is no figure.

A file of the whole campaign is cut to the run's own time. Where processes were counted, only samples with ten or more count: with fewer
the training had not started or was over. A job that never has ten is judged by the samples at its usual number, and the note says so.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from seatrial_runbooks.stage1.leak_arithmetic import MemoryGrowth, after_warm_up, growth, too_little
from seatrial_runbooks.stage1.manifest_rows import Row, TableReader, dropped_words, number
from seatrial_runbooks.stage1.run_span import RunSpan

LEAST_PROCESSES = 10
KIB_PER_MIB = 1024
ZONE_STEP_S = 900
"""Every time zone is a multiple of this away from UTC."""
OURS = "our layout (rss_kib, train_proc_count)"
DRIVER = "the driver's layout (rss_kib)"
HAND_MADE = "the hand-made sampler's layout (train_rss_kib)"


class HostSample(NamedTuple):
    """One look at the host."""

    t: float
    rss_mib: float | None
    """None where the cell cannot be right."""
    proc_count: float | None


@dataclass(frozen=True, kw_only=True)
class HostFile:
    """What could be read of one host_telemetry.csv."""

    name: str
    """With whose it is."""
    samples: tuple[HostSample, ...] = ()
    layout: str = ""
    num_torn: int = 0
    utc_offset_s: float | None = None
    """By how much its local times are ahead of UTC."""
    problem: str = ""


def read_host_file(path: Path, whose: str, *, restarts: bool) -> HostFile:
    """Every row with a time; `restarts`: where the file was begun anew, only what follows counts."""
    reader, samples, headers, offset_s = TableReader(path), list[HostSample](), 1, None
    for row in reader:
        if restarts and reader.num_headers > headers:
            samples, headers = [], reader.num_headers
        t = number(row.get("epoch_sec", ""))
        if t is not None and t > 0:
            samples.append(HostSample(t, _rss_mib(row), number(row.get("train_proc_count", ""))))
            offset_s = _utc_offset_s(row, t) if offset_s is None else offset_s
    found = HostFile(
        name=f"{path.name} of the {whose}",
        samples=tuple(samples),
        layout=_layout(reader.columns),
        num_torn=reader.num_torn,
        utc_offset_s=offset_s,
        problem=reader.problem,
    )
    if not found.problem and not found.layout:
        return replace(found, problem="its header has neither rss_kib nor train_rss_kib" if reader.columns else "it is empty")
    return found if found.problem or samples else replace(found, problem="it has no rows")


def host_growth(file: HostFile, span: RunSpan | None) -> MemoryGrowth:
    """How the memory grew within `span` (all of the file where it is None)."""
    where = f"host: {file.name}, {file.layout}{f', cut to the time of the run by {span.source}' if span else ''}"
    if file.problem:
        return MemoryGrowth(note=f"host: no figures: {file.name}: {file.problem}")
    within = [sample for sample in file.samples if span is None or span.first_t <= sample.t <= span.last_t]
    if not within:
        return MemoryGrowth(note=f"{where}: no figures: no sample is of that time")
    at_work, which = _at_work(within)
    usable = [(sample.t, sample.rss_mib) for sample in at_work if sample.rss_mib is not None]
    dropped = dropped_words(len(at_work) - len(usable), file.num_torn)
    grown = growth(usable)
    if grown is None:
        why = too_little(after_warm_up(sorted(usable))) or "all samples are of one moment"
        return MemoryGrowth(note=f"{where}: no figures: {which}{why}{dropped}")
    return MemoryGrowth(
        note=f"{where}: {which}{grown.num_samples} samples after the warm-up{dropped}",
        slope_mib_per_min=grown.slope_per_min,
        drift_mib=grown.drift,
    )


def _at_work(samples: Sequence[HostSample]) -> tuple[list[HostSample], str]:
    """The samples taken while the training ran, and the same in words."""
    counts = [int(sample.proc_count) for sample in samples if sample.proc_count is not None and sample.proc_count > 0]
    if all(sample.proc_count is None for sample in samples):
        return list(samples), ""
    if not counts:
        return [], "no sample saw a process of the training; "
    if max(counts) >= LEAST_PROCESSES:
        return _with_processes(samples, LEAST_PROCESSES), f"where {LEAST_PROCESSES} or more processes ran, "
    often = Counter(counts)
    usual = min(often, key=lambda count: (-often[count], count))
    return _with_processes(samples, usual), f"never {LEAST_PROCESSES} processes, so where the usual {usual} ran, "


def _with_processes(samples: Sequence[HostSample], least: int) -> list[HostSample]:
    return [sample for sample in samples if sample.proc_count is not None and sample.proc_count >= least]


def _layout(columns: Sequence[str]) -> str:
    if "rss_kib" in columns:
        return OURS if "train_proc_count" in columns else DRIVER
    return HAND_MADE if "train_rss_kib" in columns else ""


def _rss_mib(row: Row) -> float | None:
    rss_kib = number(row.get("rss_kib") or row.get("train_rss_kib", ""))
    total_kib = number(row.get("mem_total_kib", ""))
    # No process at all has no memory: that is no sample of the training.
    if rss_kib is None or rss_kib <= 0 or (total_kib is not None and 0 < total_kib < rss_kib):
        return None
    return rss_kib / KIB_PER_MIB


def _utc_offset_s(row: Row, t: float) -> float | None:
    """From a row that has its time twice: on the wall, and since the epoch."""
    try:
        wall = datetime.datetime.fromisoformat(row.get("timestamp", "")).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    return round((wall.timestamp() - t) / ZONE_STEP_S) * ZONE_STEP_S
