"""Synthetic memory series with known truth, for leak_rates.py: each is seeded with its number, and the same every time.

In: a number, and for leaks the rate. Out: `Series`: seconds since the first step, MiB, and the time of a step. Leak-free are caches that
fill exponentially or as t/(t + c), ramps that end, one or several allocations, drops, regular and irregular saw-teeth, worker restarts, and
noise alone; some series combine two or three. Every series has noise: white, correlated over minutes, and a slow mean-reverting drift.
Ramps end by three quarters of the run, and caches have time constants of at most a third of it: growth that outlasts the run cannot be
distinguished from a leak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Shape = Callable[[np.random.Generator, Floats], Floats]

GPU_SEGMENTS_MIB = (2.0, 20.0)
"""Segment sizes that a caching allocator requests from the driver."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One series; `shape` names its components."""

    shape: str
    kind: str
    at_s: Floats
    mib: Floats
    step_s: float


def exponential_cache(generator: np.random.Generator, part: Floats) -> Floats:
    size, constant = 10 ** generator.uniform(1.5, 4), generator.uniform(0.02, 1 / 3)
    return np.asarray(size * (1 - np.exp(-part / constant)))


def hyperbolic_cache(generator: np.random.Generator, part: Floats) -> Floats:
    size, constant = 10 ** generator.uniform(1.5, 3.5), generator.uniform(0.01, 0.15)
    return np.asarray(size * part / (part + constant))


def ramp(generator: np.random.Generator, part: Floats) -> Floats:
    first = generator.uniform(0, 0.3)
    last = generator.uniform(first + 0.03, 0.75)
    return np.asarray(10 ** generator.uniform(1.5, 4) * np.clip((part - first) / (last - first), 0, 1))


def s_shaped_ramp(generator: np.random.Generator, part: Floats) -> Floats:
    middle, width = generator.uniform(0.1, 0.5), generator.uniform(0.01, 0.06)
    return np.asarray(10 ** generator.uniform(1.5, 4) / (1 + np.exp(-(part - middle) / width)))


def one_step(generator: np.random.Generator, part: Floats) -> Floats:
    return np.asarray(10 ** generator.uniform(1.3, 4) * (part > generator.uniform(0.05, 0.95)))


def some_steps(generator: np.random.Generator, part: Floats) -> Floats:
    places = generator.uniform(0, 1, generator.integers(2, 5))
    return np.asarray(sum(10 ** generator.uniform(1.3, 3) * (part > place) for place in places))


def drop(generator: np.random.Generator, part: Floats) -> Floats:
    return np.asarray(-(10 ** generator.uniform(1.3, 3)) * (part > generator.uniform(0.1, 0.9)))


def saw_tooth(generator: np.random.Generator, part: Floats) -> Floats:
    teeth, size = 10 ** generator.uniform(np.log10(3), 2.3), 10 ** generator.uniform(1.3, 3.3)
    return np.asarray(size * ((part * teeth + generator.uniform()) % 1))


def irregular_saw_tooth(generator: np.random.Generator, part: Floats) -> Floats:
    """Teeth of different lengths, the longest a little under a third of the run."""
    teeth, size = int(10 ** generator.uniform(np.log10(5), 2)), 10 ** generator.uniform(1.3, 3)
    edges = np.concatenate([[0.0], np.cumsum(generator.uniform(0.3, 1.7, teeth))])
    edges /= edges[-1]
    place = np.clip(np.searchsorted(edges, part, side="right"), 1, teeth)
    return np.asarray(size * teeth * (part - edges[place - 1]))


def worker_restarts(generator: np.random.Generator, part: Floats) -> Floats:
    epochs, size = generator.uniform(3, 40), 10 ** generator.uniform(2, 3.5)
    return np.asarray(-size * ((part * epochs + generator.uniform()) % 1 < generator.uniform(0.01, 0.08)))


def checkpoint_buffers(generator: np.random.Generator, part: Floats) -> Floats:
    count, size = generator.uniform(4, 30), 10 ** generator.uniform(2, 3.5)
    return np.asarray(size * ((part * count + generator.uniform()) % 1 < generator.uniform(0.02, 0.2)))


def nothing(generator: np.random.Generator, part: Floats) -> Floats:
    return np.zeros_like(part)


LEAK_FREE: tuple[tuple[Shape, ...], ...] = (
    (exponential_cache,), (hyperbolic_cache,), (ramp,), (s_shaped_ramp,), (one_step,), (some_steps,), (drop,), (saw_tooth,),
    (irregular_saw_tooth,), (worker_restarts,), (checkpoint_buffers,), (nothing,), (exponential_cache, saw_tooth),
    (exponential_cache, one_step), (ramp, saw_tooth), (ramp, exponential_cache), (hyperbolic_cache, irregular_saw_tooth),
    (some_steps, saw_tooth), (s_shaped_ramp, worker_restarts, checkpoint_buffers), (exponential_cache, drop, saw_tooth),
)  # fmt: skip
LENGTHS_MIN = ((0.5, 0.2), (3, 1), (6, 2), (15, 2), (30, 2), (30, 2), (30, 5), (60, 2), (180, 10))
"""Duration in minutes, and seconds between samples."""


def leak_free(number: int) -> Series:
    """A series that does not leak."""
    generator = np.random.default_rng([7, number])
    shapes = LEAK_FREE[number % len(LEAK_FREE)]
    length_min, interval_s = LENGTHS_MIN[generator.integers(len(LENGTHS_MIN))]
    at_s = _times(generator, length_min, interval_s)
    part = at_s / at_s[-1]
    values_mib = sum((shape(generator, part) for shape in shapes), start=np.zeros_like(part))
    kind = "host" if generator.uniform() < 0.6 else "gpu"
    return _series("+".join(shape.__name__ for shape in shapes), kind, generator, at_s, values_mib)


def leaking(number: int, mib_per_min: float) -> Series:
    """Half an hour, sampled every 2 s, that leaks: continuously on the host, by allocator segments on a GPU."""
    generator = np.random.default_rng([11, number])
    at_s = _times(generator, 30, 2.0)
    kind = "host" if number % 2 else "gpu"
    leaked = at_s / 60 * mib_per_min
    if kind == "gpu":
        segment = generator.choice(GPU_SEGMENTS_MIB)
        leaked = segment * np.floor(leaked / segment + generator.uniform())
    name, overlay = LEAK_OVERLAYS[number % len(LEAK_OVERLAYS)]
    return _series(f"leak+{name}", kind, generator, at_s, leaked + overlay(generator, at_s / 60))


def _warm_up(generator: np.random.Generator, at_min: Floats) -> Floats:
    size = 10 ** generator.uniform(2, 3.7)
    if generator.uniform() < 0.5:
        return np.asarray(size * (1 - np.exp(-at_min / generator.uniform(0.2, 2.0))))
    return np.asarray(size * np.clip(at_min / generator.uniform(0.3, 6.0), 0, 1))


def _garbage(generator: np.random.Generator, at_min: Floats) -> Floats:
    period, size = 10 ** generator.uniform(-0.7, 0.48), generator.uniform(20, 400)
    return np.asarray(size * ((at_min / period + generator.uniform()) % 1))


def _checkpoints(generator: np.random.Generator, at_min: Floats) -> Floats:
    return np.asarray(generator.uniform(100, 2000) * ((at_min / generator.uniform(2, 6)) % 1 < generator.uniform(0.02, 0.15)))


def _none(generator: np.random.Generator, at_min: Floats) -> Floats:
    return np.zeros_like(at_min)


LEAK_OVERLAYS: tuple[tuple[str, Shape], ...] = (
    ("plain", _none),
    ("warm-up", _warm_up),
    ("saw-tooth", _garbage),
    ("warm-up+saw-tooth", lambda generator, at: _warm_up(generator, at) + _garbage(generator, at)),
    ("warm-up+checkpoints", lambda generator, at: _warm_up(generator, at) + _checkpoints(generator, at)),
)


def _times(generator: np.random.Generator, length_min: float, interval_s: float) -> Floats:
    """Sample times with the jitter of a busy machine, and in some series a gap."""
    steps = interval_s * (1 + np.abs(generator.normal(0, 0.02, int(length_min * 60 / interval_s))))
    if generator.uniform() < 0.2:
        steps[generator.integers(len(steps))] += 10 * interval_s
    return np.cumsum(steps)


def _series(shape: str, kind: str, generator: np.random.Generator, at_s: Floats, values_mib: Floats) -> Series:
    base = 10 ** generator.uniform(2.5, 4.7)
    mib = base + values_mib + _noise(generator, at_s, kind)
    # Drivers report whole MiB.
    return Series(
        shape=shape,
        kind=kind,
        at_s=at_s,
        mib=np.maximum(np.round(mib) if kind == "gpu" else mib, 1.0),
        step_s=10 ** generator.uniform(-1.3, 0.5),
    )


def _noise(generator: np.random.Generator, at_s: Floats, kind: str) -> Floats:
    """White noise, short and long correlated noise (as from mapped files); less on a GPU, whose allocator keeps its memory."""
    scale = 1.0 if kind == "host" else 0.2
    white = 10 ** generator.uniform(-1, 1) * scale
    short, long = generator.uniform(0, 4) * scale, generator.uniform(0, 4) * scale
    return np.asarray(
        generator.normal(0, white, len(at_s))
        + short * _correlated(generator, at_s, at_s[-1] * generator.uniform(0.002, 0.01))
        + long * _correlated(generator, at_s, at_s[-1] * generator.uniform(0.01, 0.05))
    )


def _correlated(generator: np.random.Generator, at_s: Floats, time_constant_s: float) -> Floats:
    """A mean-reverting random walk (AR(1)) with standard deviation 1."""
    keep = np.exp(-np.diff(at_s, prepend=at_s[0]) / time_constant_s)
    pushes = generator.normal(0, 1, len(at_s)) * np.sqrt(1 - keep**2)
    values, last = np.empty(len(at_s)), float(generator.normal())
    for index, (kept, push) in enumerate(zip(keep.tolist(), pushes.tolist(), strict=True)):
        last = kept * last + push
        values[index] = last
    return values
