"""Throughput, step time and efficiency at each number of GPUs.

In: sides of one family and the rate that is asked for. Out: `Sized`: what the runs of one number of GPUs come to; and a `ScalingPoint` of
each, with its efficiency against the smallest number. Sides of one number are one configuration run again, so their runs are pooled.
Runs that were made in rounds are paired, as in any comparison: what the machine did in a round is then in both and falls out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.analyse.interval import estimate, interval_of, paired_difference, ratio
from seatrial.analyse.trial import pairs_of
from seatrial.records.comparison import ScalingPoint, Side, SideRun
from seatrial.records.measure import Estimate

BY_STEPS = "steps_per_s"
SAME_WORK = 0.1
"""Work of a step that differs by less is the same: lengths of samples vary."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """All runs on one number of GPUs and nodes that tell the rate."""

    sides: tuple[Side, ...]
    metric: str
    rates: tuple[float, ...]
    """All GPUs together, by run."""
    steps_ms: tuple[float, ...]
    work: float
    """Of one GPU in one step, in the metric's unit."""

    @property
    def gpus(self) -> int:
        return self.sides[0].world_size

    @property
    def nodes(self) -> int:
        return self.sides[0].nodes


def rate_of(run: SideRun, name: str) -> float | None:
    """None unless the run tells its rate and its steps."""
    rate, steps = run.figures.get(name), run.figures.get(BY_STEPS)
    return rate if _is_rate(rate) and _is_rate(steps) else None


def _is_rate(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def by_size(sides: Sequence[Side], name: str) -> list[Sized]:
    """In the order of GPUs, then of nodes; sides that tell nothing are left out."""
    together: dict[tuple[int, int], list[Side]] = {}
    for side in sides:
        if side.world_size >= 1 and any(rate_of(run, name) is not None for run in side.runs):
            together.setdefault((side.world_size, side.nodes), []).append(side)
    return [_sized(together[size], name) for size in sorted(together)]


def _sized(sides: Sequence[Side], name: str) -> Sized:
    told = [(rate, run.figures[BY_STEPS]) for side in sides for run in side.runs if (rate := rate_of(run, name)) is not None]
    gpus = sides[0].world_size
    rates = tuple(_total(rate, name, gpus) for rate, _ in told)
    return Sized(
        sides=tuple(sides),
        metric=name,
        rates=rates,
        steps_ms=tuple(1000 / per_s for _, per_s in told),
        work=sum(rates) / sum(per_s for _, per_s in told) / gpus,
    )


def _total(rate: float, name: str, gpus: int) -> float:
    """Of all GPUs. Steps alone tell no work: each GPU's is then taken to be the same, and a step of N GPUs to be N of them."""
    return rate * gpus if name == BY_STEPS else rate


def scaling_points(sized: Sequence[Sized]) -> tuple[ScalingPoint, ...]:
    """Of each, against the first."""
    return tuple(_point(each, sized[0]) for each in sized)


def _point(each: Sized, base: Sized) -> ScalingPoint:
    return ScalingPoint(
        gpus=each.gpus,
        nodes=each.nodes,
        group=" + ".join(dict.fromkeys(side.group for side in each.sides)),
        source=" + ".join(dict.fromkeys(side.source for side in each.sides)),
        value=_estimate(each.rates),
        per_gpu=_per_gpu(each),
        # Against itself there is no interval to speak of.
        efficiency=Estimate(mean=1.0, n=len(base.rates)) if each is base else _efficiency(each, base),
        step_ms=_estimate(each.steps_ms).mean,
        runs=len(each.rates),
        weak=_is_weak(each, base),
    )


def _efficiency(each: Sized, base: Sized) -> Estimate:
    """Per GPU over that of the smallest number: by pairs where the runs are such, else by Welch."""
    alone = len(each.sides) == len(base.sides) == 1
    pairs = pairs_of(base.sides[0], each.sides[0]) if alone else []
    logs = [(_log_per_gpu(one, base), _log_per_gpu(other, each)) for one, other in pairs]
    known = [(before, after) for before, after in logs if before is not None and after is not None]
    difference = paired_difference([before for before, _ in known], [after for _, after in known]) if len(known) == len(pairs) else None
    return interval_of(difference) if difference is not None else ratio(_per_gpu(each), _per_gpu(base))


def _log_per_gpu(run: SideRun, of: Sized) -> float | None:
    rate = rate_of(run, of.metric)
    return None if rate is None else math.log(_total(rate, of.metric, of.gpus) / of.gpus)


def _per_gpu(each: Sized) -> Estimate:
    return _estimate([rate / each.gpus for rate in each.rates])


def _estimate(values: Sequence[float]) -> Estimate:
    found = estimate(values)
    assert found is not None, "rates above 0 have a mean"
    return found


def _is_weak(each: Sized, base: Sized) -> bool:
    """Whether the work of one GPU, rather than that of all together, is what the smallest number has."""
    own, whole = abs(each.work / base.work - 1), abs(each.work * each.gpus / (base.work * base.gpus) - 1)
    return bool(own <= max(SAME_WORK, whole))
