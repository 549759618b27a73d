"""Host memory of a run for the leak diagnosis.

In: host_telemetry.csv in one of three layouts, of the run itself or of the whole campaign: the driver's (`rss_kib`), the hand-made
sampler's (`train_proc_count`, `train_rss_kib`), and ours, which has the columns of both. Out: how the resident memory of the run's
processes grew, and in words which file and layout that is from, or why there is no figure.

A file of the whole campaign is cut to the run's own time. Where processes were counted, the samples from the first with ten or more of
them to the last count: before and after, the training had not started or was over. A job that never has ten is judged from the first to
the last sample with its usual number, and the note says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from seatrial.collect.original.cells import number
from seatrial.collect.original.spans import Span
from seatrial.units import KIB_PER_MIB
from seatrial_runbooks.stage1.csv_rows import Cells, TableReader, dropped_words
from seatrial_runbooks.stage1.leak_arithmetic import MemoryGrowth, after_warm_up, growth, too_little

LEAST_PROCESSES = 10
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
    problem: str = ""


def read_host_file(path: Path, whose: str, *, restarts: bool) -> HostFile:
    """Every row with a time; `restarts`: where the file was begun anew, only what follows counts."""
    reader, samples, headers = TableReader(path), list[HostSample](), 1
    for row in reader:
        if restarts and reader.num_headers > headers:
            samples, headers = [], reader.num_headers
        t = number(row.get("epoch_sec"))
        if t is not None and t > 0:
            samples.append(HostSample(t, _rss_mib(row), number(row.get("train_proc_count"))))
    found = HostFile(
        name=f"{path.name} of the {whose}",
        samples=tuple(samples),
        layout=_layout(reader.columns),
        num_torn=reader.num_torn,
        problem=reader.problem,
    )
    if not found.problem and not found.layout:
        return replace(found, problem="its header has neither rss_kib nor train_rss_kib" if reader.columns else "it is empty")
    return found if found.problem or samples else replace(found, problem="it has no rows")


def host_growth(file: HostFile, span: Span | None) -> MemoryGrowth:
    """How the memory grew within `span` (all of the file where it is None)."""
    where = f"host: {file.name}, {file.layout}{f', cut to the time of the run by {span.source}' if span else ''}"
    if file.problem:
        return MemoryGrowth(note=f"host: no figures: {file.name}: {file.problem}")
    within = [sample for sample in file.samples if span is None or span.covers(sample.t)]
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
        return _span_with(samples, LEAST_PROCESSES), f"from the first to the last sample with {LEAST_PROCESSES} or more processes, "
    often = Counter(counts)
    usual = min(often, key=lambda count: (-often[count], count))
    return _span_with(samples, usual), f"never {LEAST_PROCESSES} processes, so from the first to the last sample with the usual {usual}, "


def _span_with(samples: Sequence[HostSample], least: int) -> list[HostSample]:
    """What lies between counts too, also where fewer processes were seen for a moment."""
    times = [sample.t for sample in samples if sample.proc_count is not None and sample.proc_count >= least]
    first_t, last_t = min(times), max(times)
    return [sample for sample in samples if first_t <= sample.t <= last_t]


def _layout(columns: Sequence[str]) -> str:
    if "rss_kib" in columns:
        return OURS if "train_proc_count" in columns else DRIVER
    return HAND_MADE if "train_rss_kib" in columns else ""


def _rss_mib(row: Cells) -> float | None:
    rss_kib = number(row.get("rss_kib") or row.get("train_rss_kib"))
    total_kib = number(row.get("mem_total_kib"))
    # No process at all has no memory: that is no sample of the training.
    if rss_kib is None or rss_kib <= 0 or (total_kib is not None and 0 < total_kib < rss_kib):
        return None
    return rss_kib / KIB_PER_MIB
