"""The dummy training. In: settings and RANK, WORLD_SIZE from the environment. Out: events, heartbeats, train.log, the configured exit code.

python -m seatrial_workloads.dummy.train --steps 20 --step_ms 5
torchrun --nproc_per_node 2 -m seatrial_workloads.dummy.train --slow_rank 1

2026-11-15 03:24:55,193 - seatrial - INFO - Step 10: Loss 1.4120
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator

from seatrial.probe import Probe
from seatrial.records.events import ENV_RUN
from seatrial_workloads.common.settings import Start, load_settings
from seatrial_workloads.common.train_log import TimingLines, TrainLog, is_due, is_logged
from seatrial_workloads.dummy.barrier import Barrier
from seatrial_workloads.dummy.faults import Faults
from seatrial_workloads.dummy.settings import Settings
from seatrial_workloads.dummy.timing import Memory, Pace, compute_ms, run_factor


def main(argv: list[str] | None = None) -> None:
    start: Start[Settings] = load_settings(Settings, argv)
    settings, run_dir = start.settings, start.run_dir
    rank, world_size = int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    run_dir.mkdir(parents=True, exist_ok=True)
    with Faults(settings, run_dir, rank) as faults, Probe(run_dir) as probe, Barrier(run_dir, rank, world_size) as barrier:
        with probe.startup("process_group"):
            barrier.join()
        timing = TimingLines(rank, settings.steps, probe.recent, barrier.all_reduce_max)
        with TrainLog(run_dir, rank, timing) as log:
            log.info(f"dummy: {settings.steps} steps of about {compute_ms(settings, rank, 0):.1f} ms, {world_size} ranks")
            record_settings_without_effect(settings, world_size, probe)
            time.sleep(settings.start_delay_s)
            pace = Pace(settings=settings, rank=rank, run_factor=run_factor(settings, run_dir))
            train(pace, probe, log, barrier, faults)


def train(pace: Pace, probe: Probe, log: TrainLog, barrier: Barrier, faults: Faults) -> None:
    settings, memory = pace.settings, Memory(pace.settings)
    for step in probe.data(batches(pace)):
        with probe.step(samples=settings.micro_batch):
            with probe.phase("fwd"):
                time.sleep(pace.phase_ms(step, "fwd") / 1000.0)
                faults.in_step(step)
            with probe.phase("bwd"):
                time.sleep(pace.phase_ms(step, "bwd") / 1000.0)
                barrier.wait(step)
            with probe.phase("step"):
                time.sleep(pace.phase_ms(step, "step") / 1000.0)
        loss = loss_at(settings, step)
        probe.loss(loss)
        memory.after_step(step)
        if is_logged(step, settings.log_every, settings.steps):
            log.step(step, loss)
            probe.memory()
        if is_due(step, settings.pause_every):
            with probe.pause("checkpoint"):
                time.sleep(settings.pause_ms / 1000.0)


def record_settings_without_effect(settings: Settings, world_size: int, probe: Probe) -> None:
    """A fault of a rank that does not exist must not pass silently."""
    crash_rank = None if settings.crash_at_step is None else settings.crash_rank
    hang_rank = None if settings.hang_at_step is None else settings.hang_rank
    for name, requested in (("slow_rank", settings.slow_rank), ("crash_rank", crash_rank), ("hang_rank", hang_rank)):
        if requested is not None and requested >= world_size:
            probe.effective(name, requested=requested, effective=None, reason=f"there are only {world_size} ranks, counted from 0")
    if settings.drift_per_run and not os.environ.get(ENV_RUN):
        reason = "started by hand: no campaign whose runs could be counted"
        probe.effective("drift_per_run", requested=settings.drift_per_run, effective=0.0, reason=reason)


def batches(pace: Pace) -> Iterator[int]:
    """Step numbers from 0, each after the wait for its batch."""
    for step in range(0 if pace.settings.skip_all_steps else pace.settings.steps):
        time.sleep(pace.wait_ms(step) / 1000.0)
        yield step


def loss_at(settings: Settings, step: int) -> float:
    if settings.loss == "flat":
        return 4.0
    if settings.loss == "nan" and step >= settings.steps // 2:
        return math.nan
    return 0.5 + 3.5 * math.exp(-3.0 * step / settings.steps)


if __name__ == "__main__":
    main()
