"""Memory of a run's GPUs for the leak diagnosis.

In: gpu_telemetry.csv, ours or the original driver's. Out: the fastest growth among the GPUs, and in words what it rests on or why there
is none. Values that cannot be (no number, negative, more than the GPU has) are dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.original.cells import number
from seatrial_runbooks.stage1.csv_rows import Cells, TableReader, dropped_words
from seatrial_runbooks.stage1.leak_arithmetic import Growth, MemoryGrowth, Sample, after_warm_up, growth, too_little


@dataclass(frozen=True, kw_only=True)
class GpuSamples:
    """Used memory in MiB of each GPU, in the order of the file."""

    by_gpu: dict[str, list[Sample]]
    num_dropped: int = 0
    num_torn: int = 0
    problem: str = ""


def read_gpu_samples(path: Path) -> GpuSamples:
    """Every usable sample; where the file was begun anew, only those from there on."""
    reader, by_gpu, dropped, headers = TableReader(path), dict[str, list[Sample]](), 0, 1
    for row in reader:
        if reader.num_headers > headers:
            by_gpu, dropped, headers = {}, 0, reader.num_headers
        t, used_mib = number(row.get("epoch_sec")), _used_mib(row)
        if t is None or t <= 0 or used_mib is None:
            dropped += 1
            continue
        by_gpu.setdefault(row.get("gpu_index", "") or row.get("gpu_uuid", ""), []).append((t, used_mib))
    problem = reader.problem or ("" if by_gpu or dropped else "it has no rows")
    return GpuSamples(by_gpu=by_gpu, num_dropped=dropped, num_torn=reader.num_torn, problem=problem)


def gpu_growth(path: Path) -> MemoryGrowth:
    """Of all GPUs in the file: the largest slope and the largest drift, each of whichever GPU has it."""
    samples = read_gpu_samples(path)
    if samples.problem:
        return MemoryGrowth(note=f"gpu: no figures: {path.name}: {samples.problem}")
    dropped = dropped_words(samples.num_dropped, samples.num_torn)
    grown = {gpu: found for gpu, own in samples.by_gpu.items() if (found := growth(own)) is not None}
    if not grown:
        return MemoryGrowth(note=f"gpu: no figures: {path.name}: {_why_none(samples)}{dropped}")
    return MemoryGrowth(
        note=f"gpu: {path.name}: {_basis(samples, grown)}{dropped}",
        slope_mib_per_min=max(found.slope_per_min for found in grown.values()),
        drift_mib=max(found.drift for found in grown.values()),
    )


def _used_mib(row: Cells) -> float | None:
    used, total = number(row.get("mem_used_mib")), number(row.get("mem_total_mib"))
    if used is None or used < 0 or (total is not None and 0 < total < used):
        return None
    return used


def _why_none(samples: GpuSamples) -> str:
    most = max(samples.by_gpu.values(), key=len, default=[])
    return too_little(after_warm_up(sorted(most))) or "all samples are of one moment"


def _basis(samples: GpuSamples, grown: dict[str, Growth]) -> str:
    left_out = sorted(set(samples.by_gpu) - set(grown))
    few = f"; GPU {', '.join(left_out)} has too few samples" if left_out else ""
    least = min(found.num_samples for found in grown.values())
    gpus = "1 GPU" if len(grown) == 1 else f"{len(grown)} GPUs"
    return f"{gpus}, {least} samples or more of each after the warm-up{few}"
