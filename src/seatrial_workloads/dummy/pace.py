"""How long everything takes in a dummy training. In: settings, and which run, rank and step it is. Out: a `Pace` in milliseconds.

Chance is of the seed, rank and step alone (of a run as a whole: of the seed and its name), so that a run can be made again.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from seatrial.records.events import ENV_RUN
from seatrial_workloads.common.due import is_due
from seatrial_workloads.dummy.settings import Settings

# How a step's time is shared out, as in a small transformer.
SHARES = {"fwd": 0.35, "bwd": 0.55, "step": 0.10}
ATTEMPTS = "attempt-*"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The times of one rank."""

    settings: Settings
    rank: int
    run_factor: float = 1.0
    """How many times slower than ordered the whole run is."""

    def wait_ms(self, step: int) -> float:
        """For the batch of a step."""
        settings = self.settings
        wait_ms = settings.data_wait_ms * settings.micro_batch / 8 / (1 + settings.num_workers)
        burst_ms = settings.burst_ms if is_due(step, settings.burst_every) else 0.0
        return wait_ms + burst_ms + self._lag_ms(step, "data_wait")

    def phase_ms(self, step: int, phase: str) -> float:
        """Of a rank's own work: `fwd`, `bwd` or `step`."""
        return SHARES[phase] * compute_ms(self.settings, self.rank, step) * self.run_factor + self._lag_ms(step, phase)

    def _lag_ms(self, step: int, phase: str) -> float:
        """What a slow rank takes longer where one phase has it all."""
        settings = self.settings
        if self.rank != settings.slow_rank or settings.slow_phase != phase:
            return 0.0
        return (settings.slow_factor - 1) * compute_ms(settings, self.rank, step) * self.run_factor


def compute_ms(settings: Settings, rank: int, step: int) -> float:
    """What one rank spends on its own work in one step."""
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
    """How many times slower this run is than its settings say, for being this run and no other."""
    run = os.environ.get(ENV_RUN) or run_dir.name
    chance = random.Random(f"{settings.seed}:{run}").uniform(-1.0, 1.0)
    return float((1 + settings.repeat_spread * chance) * (1 + settings.drift_per_run) ** runs_before(settings, run_dir))


def runs_before(settings: Settings, run_dir: Path) -> int:
    """Runs of the campaign that were begun before this one. Runs come one after another, so that all ranks count the same."""
    if not settings.drift_per_run or not os.environ.get(ENV_RUN):
        return 0
    run = run_dir.parent
    return len({attempt.parent for attempt in run.parent.glob(f"*/{ATTEMPTS}")} - {run})
