"""What the probe costs a training loop.

    python benchmarks/probe_overhead.py

    {"benchmark": "probe_overhead", "figures": {"cpu_us_per_step": 9.1, "overhead_ratio_10ms": 0.00091}, "bounds": {…}, "holds": true}

The same loop (a loader, a step, three phases, a loss) runs with a probe that writes and with a silent one, in turns; the difference of
the process's CPU time, the probe's own thread included, is the cost of a step. `overhead_ratio_10ms` is that over a step of 10 ms: wall
ratios of a thousandth drown in the noise of a shared machine. Where there is a CUDA GPU, the same with phases by CUDA events and a loss
on the device (`cuda_us_per_step`), and then the wall time of GPU-bound steps with and without (`cuda_wall_ratio`, more than 1 is slower).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from outcome import report

from seatrial.probe import Probe

STEPS = 20_000
CUDA_STEPS = 20_000
WALL_STEPS = 100
ROUNDS = 7
STEP_OF_10_MS_US = 10_000.0


def main() -> None:
    cpu_us = cost_us(plain_loop, STEPS)
    figures: dict[str, float] = {"cpu_us_per_step": round(cpu_us, 2), "overhead_ratio_10ms": round(cpu_us / STEP_OF_10_MS_US, 6)}
    bounds = {"cpu_us_per_step": 20.0, "overhead_ratio_10ms": 0.003}
    notes: dict[str, object] = {"steps": STEPS, "rounds": ROUNDS}
    if cuda_is_here():
        figures |= {name: round(value, 6) for name, value in cuda_figures().items()}
        bounds["cuda_us_per_step"] = 30.0
        notes |= {"cuda_steps": CUDA_STEPS, "wall_steps": WALL_STEPS}
    report("probe_overhead", figures, bounds, **notes)


def cost_us(loop: Callable[[Probe, int], None], steps: int) -> float:
    """Median over the rounds of what a step costs more with a probe that writes."""
    differences = []
    for number in range(ROUNDS):
        silent_s, writing_s = cpu_s_of(loop, steps, writes=False), cpu_s_of(loop, steps, writes=True)
        differences.append((writing_s - silent_s) / steps * 1e6)
        print(f"round {number + 1} of {ROUNDS}: {differences[-1]:.2f} µs a step", file=sys.stderr)
    return median(differences)


def cpu_s_of(loop: Callable[[Probe, int], None], steps: int, *, writes: bool) -> float:
    """CPU time of all threads of this process, the closing of the files included."""
    with probe_that(writes=writes) as probe:
        loop(probe, steps // 10)
        began_s = time.process_time()
        loop(probe, steps)
        probe.close()
        return time.process_time() - began_s


@contextmanager
def probe_that(*, writes: bool) -> Iterator[Probe]:
    with tempfile.TemporaryDirectory() as folder:
        probe = Probe(folder if writes else None)
        yield probe
        probe.close()


def plain_loop(probe: Probe, steps: int) -> None:
    for _ in probe.data(range(steps)):
        with probe.step(samples=8, tokens=1024):
            with probe.phase("fwd"):
                pass
            with probe.phase("bwd"):
                pass
            with probe.phase("step"):
                pass
        probe.loss(3.25)


def cuda_is_here() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def cuda_figures() -> dict[str, float]:
    import torch

    small = torch.ones(8, device="cuda")
    big = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    step_s = time_of(lambda: gpu_steps(Probe(), WALL_STEPS, big)) / WALL_STEPS
    print(f"GPU-bound step: {step_s * 1000:.2f} ms", file=sys.stderr)
    return {
        "cuda_us_per_step": cost_us(lambda probe, steps: device_loop(probe, steps, small), CUDA_STEPS),
        "cuda_wall_ratio": wall_ratio(big),
        "cuda_step_ms": step_s * 1000,
    }


def device_loop(probe: Probe, steps: int, tensor: Any) -> None:
    """Phases with one kernel each: the device is never behind, so the CPU time is the probe's and the launches'."""
    for _ in probe.data(range(steps)):
        with probe.step(samples=8, tokens=1024):
            with probe.phase("fwd"):
                loss = tensor.sum()
            with probe.phase("bwd"):
                tensor.mul_(1.0)
            with probe.phase("step"):
                tensor.add_(0.0)
        probe.loss(loss)


def gpu_steps(probe: Probe, steps: int, matrix: Any) -> None:
    """Steps of about 10 ms that the GPU bounds, ended by one synchronisation."""
    import torch

    for _ in probe.data(range(steps)):
        with probe.step(samples=8, tokens=1024):
            with probe.phase("fwd"):
                product = matrix @ matrix
            with probe.phase("bwd"):
                for _ in range(5):
                    product = product @ matrix
            with probe.phase("step"):
                loss = product[0, 0].float()
        probe.loss(loss)
    torch.cuda.synchronize()


def wall_ratio(matrix: Any) -> float:
    """Median over the rounds, the two in turns and in changing order."""
    ratios = []
    for number in range(ROUNDS * 2):
        times = {}
        for writes in (False, True) if number % 2 else (True, False):
            with probe_that(writes=writes) as probe:
                gpu_steps(probe, 10, matrix)
                times[writes] = time_of(lambda probe=probe: gpu_steps(probe, WALL_STEPS, matrix))
        ratios.append(times[True] / times[False])
    return median(ratios)


def time_of(act: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
