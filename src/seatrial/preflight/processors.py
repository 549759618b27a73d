"""Processors that a run may use: the affinity mask and the container's quota against ranks, and how the clocks are governed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.machine.host import usable_cpu_count
from seatrial.preflight.cgroups import read_cgroups
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check

SYSTEM = Path("/sys/devices/system")

ENOUGH = Question(
    name="processors",
    looks_at="processors that the affinity mask and the container's quota leave, against the number of ranks",
    prevents="ranks that wait for each other's turn, and a p90 far above the p50; no error is shown",
    fix="lower place.ranks, widen the mask (taskset, numactl, srun --cpus-per-task) or the quota (docker run --cpus, limits.cpu)",
)
GOVERNOR = Question(
    name="frequency governor",
    looks_at="how the kernel sets the processors' clocks",
    prevents="first steps slower than later ones, and data workers slower than they could be; no error is shown",
    fix="sudo cpupower frequency-set -g performance",
    only_tells=True,
)
QUESTIONS = (ENOUGH, GOVERNOR)


@dataclass(frozen=True, kw_only=True)
class ProcessorFacts:
    """What there is and what may be used of it."""

    machine: int
    usable: int
    """By the affinity mask."""
    quota_cores: float | None = None
    numa_nodes: int = 1
    governors: tuple[str, ...] = ()


def checks(need: Need) -> Iterator[Check]:
    facts = read_processors()
    yield enough(facts, need)
    yield GOVERNOR.answer(True, ", ".join(facts.governors) or "not told by the kernel")


def read_processors(system: Path = SYSTEM) -> ProcessorFacts:
    return ProcessorFacts(
        machine=os.cpu_count() or 1,
        usable=usable_cpu_count(),
        quota_cores=read_cgroups().cpu_cores,
        numa_nodes=max(1, len(list((system / "node").glob("node[0-9]*")))),
        governors=tuple(sorted({_word(path) for path in (system / "cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""})),
    )


def _word(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""


def enough(facts: ProcessorFacts, need: Need) -> Check:
    cores = facts.usable if facts.quota_cores is None else min(facts.usable, facts.quota_cores)
    parts = [f"{facts.usable} of {facts.machine} usable"]
    parts += (
        [f"{facts.quota_cores:g} by the container's quota"] if facts.quota_cores is not None and facts.quota_cores < facts.usable else []
    )
    parts += [f"{facts.numa_nodes} NUMA nodes"] if facts.numa_nodes > 1 else []
    parts += [f"{need.ranks} wanted by ranks"] if need.planned else []
    return ENOUGH.answer(not need.planned or need.ranks <= max(1.0, cores), ", ".join(parts))
