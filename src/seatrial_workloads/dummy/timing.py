"""Step times and memory of the dummy training, reproducible from the seed."""

from __future__ import annotations

import mmap
import os
import random
from dataclasses import dataclass
from pathlib import Path

from seatrial.core.text import MIB
from seatrial.records.events import ENV_RUN
from seatrial_workloads.common.train_log import is_due
from seatrial_workloads.dummy.settings import Settings

# A step's time by phase, as in a small transformer.
SHARES = {"fwd": 0.35, "bwd": 0.55, "step": 0.10}
ATTEMPTS = "attempt-*"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The times of one rank."""

    settings: Settings
    rank: int
    run_factor: float = 1.0
    """Slowdown factor of the whole run."""

    def wait_ms(self, step: int) -> float:
        """Wait for a step's batch."""
        settings = self.settings
        wait_ms = settings.data_wait_ms * settings.micro_batch / 8 / (1 + settings.num_workers)
        burst_ms = settings.burst_ms if is_due(step, settings.burst_every) else 0.0
        return wait_ms + burst_ms + self._lag_ms(step, "data_wait")

    def phase_ms(self, step: int, phase: str) -> float:
        """Time of `fwd`, `bwd` or `step`."""
        return SHARES[phase] * compute_ms(self.settings, self.rank, step) * self.run_factor + self._lag_ms(step, phase)

    def _lag_ms(self, step: int, phase: str) -> float:
        """Extra time of a slow rank in its slow phase."""
        settings = self.settings
        if self.rank != settings.slow_rank or settings.slow_phase != phase:
            return 0.0
        return (settings.slow_factor - 1) * compute_ms(settings, self.rank, step) * self.run_factor


def compute_ms(settings: Settings, rank: int, step: int) -> float:
    """Compute time of a rank in one step."""
    base_ms = settings.step_ms * (0.5 + 0.5 * settings.micro_batch / 8)
    chance = random.Random(f"{settings.seed}:{rank}:{step}").uniform(-1.0, 1.0)
    passed_ratio = step / max(1, settings.steps - 1)
    factor = (1 + settings.jitter_ratio * chance) * (1 + (settings.drift_ratio - 1) * passed_ratio)
    if step < settings.warmup_steps:
        factor *= settings.warmup_factor
    if settings.shift_at_step is not None and step >= settings.shift_at_step:
        factor *= settings.shift_factor
    if is_due(step, settings.uneven_every):
        factor *= settings.uneven_factor
    if rank == settings.slow_rank and settings.slow_phase == "all":
        factor *= settings.slow_factor
    return base_ms * factor


def run_factor(settings: Settings, run_dir: Path) -> float:
    """Slowdown factor of this run: random spread, and drift by its position in the campaign."""
    run = os.environ.get(ENV_RUN) or run_dir.name
    chance = random.Random(f"{settings.seed}:{run}").uniform(-1.0, 1.0)
    return float((1 + settings.repeat_spread * chance) * (1 + settings.drift_per_run) ** runs_before(settings, run_dir))


def runs_before(settings: Settings, run_dir: Path) -> int:
    """Runs of the campaign started before this one. Runs are sequential, so all ranks count the same."""
    if not settings.drift_per_run or not os.environ.get(ENV_RUN):
        return 0
    run = run_dir.parent
    return len({attempt.parent for attempt in run.parent.glob(f"*/{ATTEMPTS}")} - {run})


class Memory:
    """Memory that one rank holds: leaked, cached, and periodically freed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leaked: list[mmap.mmap] = []
        self._cache: list[mmap.mmap] = []
        self._saw: list[mmap.mmap] = []

    def after_step(self, step: int) -> None:
        """Allocate and free for one step."""
        settings = self._settings
        self._leaked += allocate(settings.leak_mib_per_step)
        if step < settings.cache_steps:
            self._cache += allocate(settings.cache_mib / settings.cache_steps)
        if step % settings.saw_every == 0:
            self._saw.clear()
        self._saw += allocate(settings.saw_mib / settings.saw_every)


def allocate(mib: float) -> list[mmap.mmap]:
    """One block of memory, none for 0. mmap returns pages to the kernel at once when freed; a heap may keep them."""
    size = int(mib * MIB)
    if size == 0:
        return []
    # Private, so that the kernel merges many blocks: a process may have only some 65,000 mappings.
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    # Untouched pages use no memory.
    for page in range(0, size, mmap.PAGESIZE):
        block[page] = 1
    return [block]
