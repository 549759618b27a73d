"""Peaks of GPU memory, from what the ranks and the sampler wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seatrial.collect.attempts import read_campaign, read_plans
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import MIB
from seatrial.records.telemetry import GPU_COLUMNS
from seatrial.results.observed_memory import ObservedMemory, observed_memory
from tests.unit.collect import on_disk
from tests.unit.results.campaigns import write_campaign, write_samples


def test_the_highest_peak_of_a_group(tmp_path: Path) -> None:
    paths = write_campaign(tmp_path)
    (plan,) = read_plans(paths)
    for attempt in read_campaign(paths):
        if attempt.spec.group == "mb8" and attempt.current:
            own = AttemptPaths(Path(attempt.folder))
            for rank, peak in ((0, 900.5), (1, 2048.0)):
                with own.events(rank).open("a") as events:
                    events.write(on_disk.event(attempt, "memory", rank=rank, step=9, peak_mib=peak) + "\n")
            write_samples(
                own.gpu_telemetry, GPU_COLUMNS, [{"epoch_sec": 2 + at, "gpu_index": 0, "mem_used_mib": 3000 + at} for at in (0, 2)]
            )
    assert observed_memory(paths, plan) == {"mb8": ObservedMemory(allocated_bytes=2048 * MIB, in_use_bytes=3002 * MIB)}
    changed = replace(plan, runs=tuple(replace(spec, hash="changed") for spec in plan.runs))
    assert observed_memory(paths, changed) == {}
