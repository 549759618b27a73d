"""Error of the throughput measured over the detected steady state.

    python benchmarks/steady_state.py

    no_warm_up   n 34  within 5 % 1.00  found steady 1.00
    …
    {"benchmark": "steady_state", "figures": {"within_5pct_fraction": 0.995, "unsteady_called_fraction": 1.0, …}, …}

200 series of step times with a known steady part: warm-ups of six shapes over up to 40 % of the run, noise of 0.5 to 15 % (normal,
heavy-tailed, correlated), single slow steps, slow steps at regular intervals, 60 to 3,000 steps, no pauses. `within_5pct_fraction` is the
share of windows whose mean step time is within 5 % of that of the true steady steps, slow ones included. `unsteady_called_fraction` is the
share of 100 series without a steady state (drifts and level shifts of at least 20 %) that are found unsteady, `steady_missed_fraction` the
share of the steady ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outcome import parser, report
from seatrial.analyse.steady_state import find_steady_state

Floats = npt.NDArray[np.float64]
WarmUp = Callable[[np.random.Generator, int, int], Floats]

STEADY_SERIES = 200
UNSTEADY_SERIES = 100
TOLERANCE = 0.05
LENGTHS = (60, 120, 200, 400, 1000, 3000)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Step times; the steps from `steady_from` on are steady."""

    shape: str
    times_ms: Floats
    steady_from: int


def no_warm_up(generator: np.random.Generator, count: int, length: int) -> Floats:
    return np.ones(count)


def single(generator: np.random.Generator, count: int, length: int) -> Floats:
    return np.where(np.arange(count) == 0, 10 ** generator.uniform(0.5, 2.5), 1.0)


def block(generator: np.random.Generator, count: int, length: int) -> Floats:
    return np.where(np.arange(count) < length, generator.uniform(1.3, 8), 1.0)


def exponential(generator: np.random.Generator, count: int, length: int) -> Floats:
    """Exponential decay, to a thousandth at `length`."""
    return np.asarray(1 + generator.uniform(0.5, 5) * np.exp(-np.arange(count) * 7 / max(1, length)))


def linear(generator: np.random.Generator, count: int, length: int) -> Floats:
    return np.asarray(1 + generator.uniform(0.3, 3) * np.clip(1 - np.arange(count) / max(1, length), 0, 1))


def two_stages(generator: np.random.Generator, count: int, length: int) -> Floats:
    return single(generator, count, length) * block(generator, count, length)


WARM_UPS: tuple[WarmUp, ...] = (no_warm_up, single, block, exponential, linear, two_stages)


def steady_series(number: int) -> Series:
    generator = np.random.default_rng([3, number])
    warm_up, count = WARM_UPS[number % len(WARM_UPS)], int(generator.choice(LENGTHS))
    length = int(count * generator.uniform(0.01, 0.4))
    level_ms = 10 ** generator.uniform(0, 3.5)
    times = level_ms * warm_up(generator, count, length) * noise(generator, count) * slow_steps(generator, count)
    steady_from = 0 if warm_up is no_warm_up else 1 if warm_up is single else length
    return Series(shape=warm_up.__name__, times_ms=times, steady_from=steady_from)


def noise(generator: np.random.Generator, count: int) -> Floats:
    """A factor per step: normal, heavy-tailed or autocorrelated."""
    spread = 10 ** generator.uniform(np.log10(0.005), np.log10(0.15))
    kind = generator.integers(3)
    if kind == 0:
        return np.asarray(np.exp(generator.normal(0, spread, count)))
    if kind == 1:
        return np.asarray(1 + spread * np.minimum(generator.pareto(2.5, count), 30))
    pushes, keep = generator.normal(0, spread * np.sqrt(1 - 0.3**2), count), 0.3
    return np.asarray(np.exp(np.convolve(pushes, keep ** np.arange(12))[:count]))


def slow_steps(generator: np.random.Generator, count: int) -> Floats:
    """None, a few at random, or at regular intervals."""
    kind, times = generator.integers(3), np.ones(count)
    if kind == 1:
        times[generator.integers(0, count, max(1, count // 100))] *= generator.uniform(1.5, 6)
    if kind == 2:
        times[:: int(generator.integers(5, 30))] *= generator.uniform(1.3, 4)
    return times


def unsteady_series(number: int) -> Series:
    """A drift, or a level shift at once or in stages, of at least 20 % and well above the noise."""
    generator = np.random.default_rng([5, number])
    count, change = int(generator.choice(LENGTHS)), generator.uniform(1.25, 2)
    spread = generator.uniform(0.005, 0.05)
    part = np.linspace(0, 1, count)
    kind = ("drift", "level shift", "stages")[number % 3]
    curve = {
        "drift": 1 + (change - 1) * part,
        "level shift": np.where(part > generator.uniform(0.25, 0.85), change, 1.0),
        "stages": 1 + (change - 1) * np.floor(part * 4) / 3,
    }[kind]
    return Series(shape=kind, times_ms=100 * curve * np.exp(generator.normal(0, spread, count)), steady_from=count)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--first", type=int, default=0, help="number of the first series (0); another gives other series")
    options.add_argument("--series", type=int, default=STEADY_SERIES, help="series with a steady state; half as many are without one")
    options.add_argument("-v", "--verbose", action="store_true", help="list the misclassified series")
    args = options.parse_args()
    num = 8 if args.quick else args.series
    within, steady, by_shape = [], [], defaultdict(list)
    for series in map(steady_series, range(args.first, args.first + num)):
        found = find_steady_state(series.times_ms)
        truth_ms, measured_ms = series.times_ms[series.steady_from :].mean(), series.times_ms[found.warmup :].mean()
        within.append(abs(truth_ms / measured_ms - 1) <= TOLERANCE)
        steady.append(found.steady)
        by_shape[series.shape].append((within[-1], steady[-1]))
        if args.verbose and not (within[-1] and steady[-1]):
            print(series.shape, len(series.times_ms), series.steady_from, found, f"{truth_ms / measured_ms - 1:+.3f}")
    for shape, results in by_shape.items():
        print(f"{shape:<12} n {len(results)}  within 5 % {np.mean(results, axis=0)[0]:.2f}  found steady {np.mean(results, axis=0)[1]:.2f}")
    unsteady = [unsteady_series(number) for number in range(args.first, args.first + num // 2)]
    rejected = [not find_steady_state(series.times_ms).steady for series in unsteady]
    figures = {
        "within_5pct_fraction": round(float(np.mean(within)), 4),
        "unsteady_called_fraction": round(float(np.mean(rejected)), 4),
        "steady_missed_fraction": round(1 - float(np.mean(steady)), 4),
    }
    notes = {"series": len(within), "unsteady_series": len(rejected), "first": args.first}
    report("steady_state", figures, {}, {"within_5pct_fraction": 0.95}, quick=args.quick, **notes)


if __name__ == "__main__":
    main()
