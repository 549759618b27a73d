"""How throughput grows with the number of GPUs.

In: sides (groups, campaigns, rows of history) at several numbers of GPUs. Out: `Scaling`: total and per-GPU throughput and efficiency of
each with intervals on logs; a fit of compute, bandwidth and latency with what it projects (analyse.scaling_fit); one sentence on what
will bound it; and cautions where the sides are not alike in all but their number of GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seatrial.analyse.interval import estimate, ratio
from seatrial.analyse.scaling_cautions import scaling_cautions
from seatrial.analyse.scaling_fit import PARTS, Fit, Timed
from seatrial.records.comparison import Projection, Scaling, ScalingPoint, Side, SideRun
from seatrial.records.measure import Estimate

RATES = {"samples_per_s": "samples/s", "tokens_per_s": "tokens/s", "steps_per_s": "GPU steps/s"}
"""Steps alone tell no work: each GPU's is then taken to be the same, and a step of N GPUs to be N of them."""
SAME_WORK = 0.1
"""Work of a step that differs by less is the same: lengths of samples vary."""
TIMES_LARGEST = 8
"""Projections go up to so many times the largest number that was run: beyond, other networks and other limits set in."""


@dataclass(frozen=True, kw_only=True)
class _Sized:
    """A side with what its runs come to."""

    side: Side
    rates: tuple[float, ...]
    """All GPUs together, by run."""
    steps_ms: tuple[float, ...]
    work: float
    """Of one GPU in one step, in the metric's unit."""

    @property
    def gpus(self) -> int:
        return self.side.world_size


def scaling(sides: Sequence[Side], metric: str = "throughput", *, gpus: Sequence[int] = ()) -> Scaling:
    """Points in the order of GPUs, and projections to `gpus`, or to the next powers of two where none are given."""
    name = _metric(sides, metric)
    if name is None:
        return Scaling(metric=metric, unit="", points=(), reason=_no_metric(metric))
    sized = sorted((one for side in sides if (one := _sized(side, name))), key=lambda each: (each.gpus, each.side.nodes, each.side.name))
    if not sized:
        return Scaling(
            metric=name, unit=RATES[name], points=(), reason=f"No run tells {name}: run the sides again, or choose another metric."
        )
    points = tuple(_points(sized))
    cautions = scaling_cautions(sides, points, told=[each.side.name for each in sized], metric=name)
    found = Scaling(metric=name, unit=RATES[name], points=points, cautions=cautions)
    sizes = {point.gpus for point in points}
    if len(sizes) < 2:
        alone = f"All sides ran on {points[0].gpus} GPU{'s' if points[0].gpus > 1 else ''}"
        return replace(found, reason=f"{alone}: run one more number of GPUs at least, then a fit can be made.")
    return _fitted(found, sized, gpus or _next_sizes(max(sizes)))


def _metric(sides: Sequence[Side], metric: str) -> str | None:
    """For `throughput` samples where most runs tell them, else tokens, else steps."""
    if metric != "throughput":
        return metric if metric in RATES else None
    runs = [run for side in sides for run in side.runs]
    return next((name for name in RATES if 2 * sum(_rate(run, name) is not None for run in runs) > len(runs)), "steps_per_s")


def _no_metric(metric: str) -> str:
    return f"'{metric}' is no rate that could grow with GPUs: choose throughput, {', '.join(RATES)}."


def _rate(run: SideRun, name: str) -> float | None:
    """None unless the run tells its rate and its steps."""
    rate, steps = run.figures.get(name), run.figures.get("steps_per_s")
    return rate if _is_rate(rate) and _is_rate(steps) else None


def _is_rate(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _sized(side: Side, name: str) -> _Sized | None:
    told = [(rate, run.figures["steps_per_s"]) for run in side.runs if (rate := _rate(run, name)) is not None]
    if not told or side.world_size < 1:
        return None
    by_steps = name == "steps_per_s"
    rates = tuple(rate * side.world_size if by_steps else rate for rate, _ in told)
    steps = sum(per_s for _, per_s in told)
    return _Sized(
        side=side,
        rates=rates,
        steps_ms=tuple(1000 / per_s for _, per_s in told),
        work=sum(rates) / steps / side.world_size,
    )


def _points(sized: Sequence[_Sized]) -> list[ScalingPoint]:
    base = [each for each in sized if each.gpus == sized[0].gpus]
    at_base = _estimate([rate / each.gpus for each in base for rate in each.rates])
    return [_point(each, at_base, base[0], alone=len(base) == 1) for each in sized]


def _point(each: _Sized, at_base: Estimate, base: _Sized, *, alone: bool) -> ScalingPoint:
    per_gpu = _estimate([rate / each.gpus for rate in each.rates])
    efficiency = ratio(per_gpu, at_base)
    if each.gpus == base.gpus:
        # Against itself, or a pool that it is part of, there is no interval to speak of.
        efficiency = Estimate(mean=1.0 if alone else efficiency.mean, n=efficiency.n)
    return ScalingPoint(
        gpus=each.gpus,
        nodes=each.side.nodes,
        group=each.side.group,
        source=each.side.source,
        value=_estimate(each.rates),
        per_gpu=per_gpu,
        efficiency=efficiency,
        step_ms=_estimate(each.steps_ms).mean,
        runs=len(each.rates),
        weak=_is_weak(each, base),
    )


def _is_weak(each: _Sized, base: _Sized) -> bool:
    """Whether the work of one GPU, rather than that of all together, is what the smallest number has."""
    own, whole = abs(each.work / base.work - 1), abs(each.work * each.gpus / (base.work * base.gpus) - 1)
    return bool(own <= max(SAME_WORK, whole))


def _estimate(values: Sequence[float]) -> Estimate:
    found = estimate(values)
    assert found is not None, "rates above 0 have a mean"
    return found


def _next_sizes(largest: int) -> list[int]:
    """Powers of two above the largest number that was run, up to TIMES_LARGEST times as many."""
    first = 1 << largest.bit_length()
    return [first << shift for shift in range(TIMES_LARGEST.bit_length()) if first << shift <= TIMES_LARGEST * largest]


def _fitted(found: Scaling, sized: Sequence[_Sized], gpus: Sequence[int]) -> Scaling:
    base, largest = sized[0], sized[-1]
    fit = Fit(
        [
            Timed(gpus=each.gpus, step_ms=step_ms, work=each.work / base.work, side=at)
            for at, each in enumerate(sized)
            for step_ms in each.steps_ms
        ]
    )
    compute_ms, bandwidth_ms, latency_ms = fit.parts.tolist()
    projections = tuple(each for number in gpus if (each := _projection(fit, number, base, largest, found.points)) is not None)
    return replace(
        found,
        compute_ms=compute_ms,
        bandwidth_ms=bandwidth_ms,
        latency_ms=latency_ms if fit.sizes > 2 else None,
        projections=projections,
        reason=_reason(fit, projections, found.points),
    )


def _projection(fit: Fit, gpus: int, base: _Sized, largest: _Sized, points: Sequence[ScalingPoint]) -> Projection | None:
    """Each GPU's work goes on as in the largest number that was run, or the whole work does where that is what stayed."""
    work = largest.work if points[-1].weak else largest.work * largest.gpus / gpus
    step = fit.at(gpus, work / base.work)
    if step is None:
        return None
    in_step = work * gpus * 1000
    value = in_step / step.step_ms
    return Projection(
        gpus=gpus,
        value=value,
        low=in_step / step.high_ms,
        high=in_step / step.low_ms,
        efficiency=value / gpus / points[0].per_gpu.mean,
        bound_by=step.largest,
    )


def _reason(fit: Fit, projections: Sequence[Projection], points: Sequence[ScalingPoint]) -> str:
    sizes = ", ".join(map(str, sorted({point.gpus for point in points})))
    if not projections:
        return (
            f"Without repeats at {sizes} GPUs nobody can tell how far the fit may be off, so nothing is projected: run each number twice."
        )
    last = projections[-1]
    growth_ms, growing = max(zip(fit.growth_ms(points[-1].gpus, last.gpus), PARTS[1:], strict=True))
    grows = f"{growing} is what grows most on the way" if growth_ms > 0 else "nothing in a step grows with their number"
    if fit.sizes == 2 and growth_ms > 0:
        grows = "whether bandwidth or latency grows cannot be told by two numbers"
    efficiency = f"{100 * last.efficiency:.0f} % efficiency"
    bound = f"a step on {last.gpus} is bound by {last.bound_by}, its largest part"
    return f"By the runs on {sizes} GPUs, {bound}, and {grows}: {efficiency} there."
