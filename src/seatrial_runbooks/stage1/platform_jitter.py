"""Platform jitter of one run, as phase B defines it: anti-correlated GPU utilisation, and iter p90/p50 persistently above 2.

In: a run's folder with gpu_telemetry.csv and train.log. Out: what was found, and what could not be checked and why.

`seatrial report` finds anti-correlation in the same way (analyse/gpu_throttling.py) over the run's steady window, with numpy. This one
needs only the standard library and has no steady window: it takes the samples from when every GPU has begun to work until the first is
done. The bounds are the same; a test compares the two.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from statistics import correlation, median

from seatrial.collect.logs.launcher_log import StampedLine, read_stage1_lines
from seatrial.collect.original.manifests import number
from seatrial.core.errors import UsageError
from seatrial.core.files import read_json
from seatrial.core.paths import AttemptPaths, RunPaths
from seatrial.records.measure import (
    ANTI_CORRELATION_MAX_COEFFICIENT,
    ANTI_CORRELATION_MIN_SAMPLES,
    ANTI_CORRELATION_MIN_SIGMAS,
    ANTI_CORRELATION_MIN_SWING_PCT,
    IDLE_PCT,
    JITTER_RATIO,
    exceeds,
    iter_ratios,
    jitters_persistently,
)
from seatrial.records.plan import TimingSpec
from seatrial_runbooks.stage1.leak_inputs import RunFinder
from seatrial_runbooks.stage1.leak_series import Cells, Sample, read_table

MAX_PCT = 100.0
SIMULTANEOUS = 0.5
"""Share of a sampling interval: samples of two GPUs closer than this count as simultaneous."""


@dataclass(frozen=True, kw_only=True)
class PlatformJitter:
    found: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be checked, and why."""


def platform_jitter(root: Path, run: str, attempt: int) -> PlatformJitter:
    """Jitter of `run` in the campaign at `root`; `attempt` is 0 in folders of the original scripts."""
    numbered = RunPaths(root / run).attempt(attempt).folder
    try:
        (one,) = RunFinder().runs(numbered if numbered.is_dir() else root / run)
    except UsageError:
        return PlatformJitter(unknown=("its folder is missing",))
    lines = one.logs.counting.trainer_lines.lines if one.logs.counting else ()
    found: list[str] = []
    unknown: list[str] = []
    for text, is_found in (_anti_correlation(AttemptPaths(one.folder)), _persistent(lines)):
        if text:
            (found if is_found else unknown).append(text)
    return PlatformJitter(found=tuple(found), unknown=tuple(unknown))


def _persistent(lines: Sequence[str]) -> tuple[str, bool]:
    points = read_stage1_lines([StampedLine(None, line, math.nan, math.nan) for line in lines]).points
    ratios = iter_ratios(points, TimingSpec.timing_window)
    found = jitters_persistently(ratios)
    if found is None:
        return f"iter p90/p50 over time: {len(ratios)} timing windows without step 0", False
    high = sum(exceeds(ratio, JITTER_RATIO) for ratio in ratios)
    return (f"iter p90/p50 is above {JITTER_RATIO:g} in {high} of {len(ratios)} timing windows" if found else ""), True


def _anti_correlation(paths: AttemptPaths) -> tuple[str, bool]:
    path = paths.gpu_telemetry
    table = read_table(path)
    rows = table.parts[-1] if table.parts else ()
    if not rows and _is_without_gpus(paths):
        return "", True
    if not rows:
        return f"anti-correlated GPU utilisation: {path.name}: {table.problem or 'it has no rows'}", False
    by_gpu = utilisation(rows)
    if len(by_gpu) < 2:
        return "", True
    together = simultaneous(by_gpu)
    if len(together) < ANTI_CORRELATION_MIN_SAMPLES:
        few = f"{len(together)} samples of all GPUs at work, at least {ANTI_CORRELATION_MIN_SAMPLES} are needed"
        return f"anti-correlated GPU utilisation: {few}", False
    pair = most_opposed(list(by_gpu), together)
    if pair is None:
        return "", True
    both = f"GPU {pair[0]} and GPU {pair[1]}"
    return f"{both} have anti-correlated utilisation: rank correlation {pair[2]:.2f} (n = {len(together)} samples)", True


def _is_without_gpus(paths: AttemptPaths) -> bool:
    """Whether a run of ours had fewer than two GPUs, so that none can be anti-correlated; False where unknown (original scripts)."""
    spec, provenance = read_json(paths.spec), read_json(paths.provenance)
    if spec is None or provenance is None:
        return False
    try:
        place = spec["place"]
        named = sum(len(host["devices"]) for host in place["hosts"]) or len(place["devices"]) * max(1, place["nodes"])
        on_cpu = not provenance["gpu_uuid_list"] or spec["settings"].get("device") == "cpu"
    except (KeyError, TypeError, AttributeError):
        return False
    return named < 2 if named else on_cpu


def utilisation(rows: Sequence[Cells]) -> dict[str, list[Sample]]:
    """Time and percent of each GPU that ever works, by its index; impossible values are left out."""
    samples: dict[str, list[Sample]] = {}
    for row in rows:
        at, util = number(row.get("epoch_sec")), number(row.get("util_gpu_pct"))
        if at is not None and util is not None and 0 <= util <= MAX_PCT:
            samples.setdefault(row.get("gpu_index", ""), []).append((at, util))
    return {gpu: sorted(own) for gpu, own in sorted(samples.items()) if max(util for _, util in own) > IDLE_PCT}


def simultaneous(by_gpu: dict[str, list[Sample]]) -> list[tuple[float, ...]]:
    """Utilisation of all GPUs at each time of the first one's samples, while all are at work."""
    working = [[at for at, util in own if util > IDLE_PCT] for own in by_gpu.values()]
    first, last = max(times[0] for times in working), min(times[-1] for times in working)
    times = [at for at, _ in next(iter(by_gpu.values()))]
    near_s = SIMULTANEOUS * median([after - before for before, after in pairwise(times)] or [0.0])
    rows = ([_nearest(own, at, near_s) for own in by_gpu.values()] for at in times if first <= at <= last)
    return [tuple(value for value in row if value is not None) for row in rows if None not in row]


def _nearest(samples: Sequence[Sample], at: float, near_s: float) -> float | None:
    place = bisect_left(samples, (at, -math.inf))
    found = min(samples[max(0, place - 1) : place + 1], key=lambda sample: abs(sample[0] - at))
    return found[1] if abs(found[0] - at) <= near_s else None


def most_opposed(gpus: Sequence[str], rows: Sequence[Sequence[float]]) -> tuple[str, str, float] | None:
    """The most clearly anti-correlated pair, if any is."""
    columns = {gpu: list(column) for gpu, column in zip(gpus, zip(*rows, strict=True), strict=True)}
    ranked = {gpu: _ranks(column) for gpu, column in columns.items() if _swing(column) >= ANTI_CORRELATION_MIN_SWING_PCT}
    found = []
    for (one, ranks), (other, other_ranks) in combinations(ranked.items(), 2):
        value = correlation(ranks, other_ranks)
        widths = -value * math.sqrt(_effective_samples(ranks, other_ranks) - 1)
        if value <= ANTI_CORRELATION_MAX_COEFFICIENT and widths >= ANTI_CORRELATION_MIN_SIGMAS:
            found.append((one, other, value))
    return min(found, key=lambda pair: pair[2], default=None)


def _swing(values: Sequence[float]) -> float:
    """Range between the 10th and the 90th percentile."""
    ordered, last = sorted(values), len(values) - 1
    return ordered[int(0.9 * last)] - ordered[math.ceil(0.1 * last)]


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks of the values; equal ones have their mean rank."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_left(ordered, math.nextafter(value, math.inf)) - 1) / 2 for value in values]


def _effective_samples(one: Sequence[float], other: Sequence[float]) -> float:
    """The number of independent samples: utilisation is autocorrelated."""
    product = max(0.0, _autocorrelation(one) * _autocorrelation(other))
    return max(2.0, len(one) * (1 - product) / (1 + product))


def _autocorrelation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    centred = [value - mean for value in values]
    return sum(a * b for a, b in pairwise(centred)) / sum(value * value for value in centred)
