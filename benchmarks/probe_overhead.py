"""Overhead of the probe in a training loop.

    python benchmarks/probe_overhead.py

    {"benchmark": "probe_overhead", "figures": {"cpu_us_per_step": 9.1, "overhead_ratio_10ms": 0.00091}, "bounds": {…}, "holds": true}

The same loop (a loader, a step, three phases, a loss) runs with an enabled and with a disabled probe, in many short blocks of alternating
order. The cost of a step is the median over pairs of blocks of the difference in process CPU time, with the probe's thread and the closing
of its files: the speed of a shared machine changes by a third from one second to the next, which hardly affects a pair.
`overhead_ratio_10ms` divides it by a step of 10 ms: wall-time ratios of a thousandth are lost in the noise. With a CUDA GPU, the same with
phases timed by CUDA events and a loss on the device (`cuda_us_per_step`), and the wall time of GPU-bound steps with over without
(`cuda_wall_ratio`).
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

from outcome import parser, report
from seatrial.probe import Probe

BLOCK_STEPS = 2_000
PAIRS = 100
WALL_STEPS = 100
WALL_PAIRS = 14
STEP_OF_10_MS_US = 10_000.0


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    pairs = 4 if quick else PAIRS
    cpu_us = cost_us(plain_loop, pairs)
    cpu = median(cpu_us)
    figures: dict[str, float] = {"cpu_us_per_step": round(cpu, 2), "overhead_ratio_10ms": round(cpu / STEP_OF_10_MS_US, 6)}
    bounds = {"cpu_us_per_step": 20.0, "overhead_ratio_10ms": 0.003}
    notes: dict[str, object] = {"block_steps": BLOCK_STEPS, "pairs": pairs, "cpu_us_p10_p90": p10_p90(cpu_us)}
    if is_cuda_available():
        small, big = cuda_tensors()
        cuda_us = cost_us(lambda probe, steps: device_loop(probe, steps, small), pairs)
        step_s = time_of(lambda: gpu_steps(Probe(), WALL_STEPS, big)) / WALL_STEPS
        figures |= {"cuda_us_per_step": round(median(cuda_us), 2), "cuda_wall_ratio": round(wall_ratio(big), 6)}
        bounds["cuda_us_per_step"] = 30.0
        notes |= {"cuda_us_p10_p90": p10_p90(cuda_us), "wall_steps": WALL_STEPS, "cuda_step_ms": round(step_s * 1000, 3)}
    report("probe_overhead", figures, bounds, {}, quick=quick, **notes)


def cost_us(loop: Callable[[Probe, int], None], pairs: int) -> list[float]:
    """Extra CPU time of a step with an enabled probe, per pair of blocks."""
    differences = []
    for number in range(pairs):
        cpu_s = {enabled: cpu_s_of(loop, enabled=enabled) for enabled in ((False, True) if number % 2 else (True, False))}
        differences.append((cpu_s[True] - cpu_s[False]) / BLOCK_STEPS * 1e6)
        if (number + 1) % 20 == 0:
            print(f"pair {number + 1} of {pairs}: median so far {median(differences):.2f} µs a step", file=sys.stderr)
    return differences


def p10_p90(values: list[float]) -> list[float]:
    deciles = quantiles(values, n=10)
    return [round(deciles[0], 2), round(deciles[-1], 2)]


def cpu_s_of(loop: Callable[[Probe, int], None], *, enabled: bool) -> float:
    """CPU time of all threads of this process, including the closing of the files."""
    with temporary_probe(enabled=enabled) as probe:
        loop(probe, BLOCK_STEPS // 10)
        began_s = time.process_time()
        loop(probe, BLOCK_STEPS)
        probe.close()
        return time.process_time() - began_s


@contextmanager
def temporary_probe(*, enabled: bool) -> Iterator[Probe]:
    with tempfile.TemporaryDirectory() as folder:
        probe = Probe(folder if enabled else None)
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


def is_cuda_available() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def cuda_tensors() -> tuple[Any, Any]:
    """A small one with negligible kernels, and one whose matrix products take milliseconds."""
    import torch

    return torch.ones(8, device="cuda"), torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)


def device_loop(probe: Probe, steps: int, tensor: Any) -> None:
    """Phases with one kernel each: the device keeps up, so the CPU time is that of the probe and the launches."""
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
    """GPU-bound steps of about 10 ms, with one synchronisation at the end."""
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
    """Wall time with the probe over without, median of pairs in alternating order."""
    ratios = []
    for number in range(WALL_PAIRS):
        times = {}
        for enabled in (False, True) if number % 2 else (True, False):
            with temporary_probe(enabled=enabled) as probe:
                gpu_steps(probe, 10, matrix)
                times[enabled] = time_of(functools.partial(gpu_steps, probe, WALL_STEPS, matrix))
        ratios.append(times[True] / times[False])
    return median(ratios)


def time_of(action: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
