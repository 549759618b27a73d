"""How throughput grows with the number of GPUs.

In: sides of one family (groups, campaigns, rows of history that differ in their number of GPUs: analyse.scaling_families parts them).
Out: `Scaling`: total and per-GPU throughput and efficiency of each number with intervals on logs (analyse.scaling_points); a fit of
compute, bandwidth and latency with what it projects (analyse.scaling_fit); one sentence on what will bound it; and cautions where the
sides are not alike in all but their number of GPUs. On machines without GPUs it is ranks that are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seatrial.analyse.scaling_cautions import scaling_cautions
from seatrial.analyse.scaling_fit import PARTS, Fit, Timed
from seatrial.analyse.scaling_points import Sized, by_size, rate_of, scaling_points
from seatrial.records.comparison import Projection, Scaling, ScalingPoint, Side

RATES = {"samples_per_s": "samples/s", "tokens_per_s": "tokens/s", "steps_per_s": "steps/s"}
TIMES_LARGEST = 8
"""Projections go up to so many times the largest number that was run: beyond, other networks and other limits set in."""


def scaling(sides: Sequence[Side], metric: str = "throughput", *, gpus: Sequence[int] = ()) -> Scaling:
    """Points in the order of GPUs, and projections to `gpus`, or to the next powers of two where none are given."""
    name, worker = _metric(sides, metric), worker_of(sides)
    if name is None:
        return Scaling(metric=metric, unit="", points=(), reason=_no_metric(metric, worker), worker=worker)
    sized = by_size(sides, name)
    unit = f"{worker} {RATES[name]}" if name == "steps_per_s" else RATES[name]
    found = Scaling(metric=name, unit=unit, points=(), worker=worker)
    if not sized:
        return replace(found, reason=f"No run tells {name}: run the sides again, or choose another metric.")
    points = scaling_points(sized)
    told = [side.name for each in sized for side in each.sides]
    found = replace(found, points=points, cautions=scaling_cautions(sides, points, told=told, metric=name, worker=worker))
    if not found.is_measured:
        alone = f"All sides ran on {points[0].gpus} {worker}{'s' if points[0].gpus > 1 else ''}"
        return replace(found, reason=f"{alone}: run one more number of {worker}s at least, then a fit can be made.")
    return _fitted(found, sized, gpus or _next_sizes(points[-1].gpus))


def worker_of(sides: Sequence[Side]) -> str:
    """What there are several of: GPUs, or ranks where a machine has none or nobody knows."""
    return "GPU" if sides and all(side.machine.get("gpu_name", "none") != "none" for side in sides) else "rank"


def _metric(sides: Sequence[Side], metric: str) -> str | None:
    """For `throughput` samples where most runs tell them, else tokens, else steps."""
    if metric != "throughput":
        return metric if metric in RATES else None
    runs = [run for side in sides for run in side.runs]
    return next((name for name in RATES if 2 * sum(rate_of(run, name) is not None for run in runs) > len(runs)), "steps_per_s")


def _no_metric(metric: str, worker: str) -> str:
    return f"'{metric}' is no rate that could grow with {worker}s: choose throughput, {', '.join(RATES)}."


def _next_sizes(largest: int) -> list[int]:
    """Powers of two above the largest number that was run, up to TIMES_LARGEST times as many."""
    first = 1 << largest.bit_length()
    return [first << shift for shift in range(TIMES_LARGEST.bit_length()) if first << shift <= TIMES_LARGEST * largest]


def _fitted(found: Scaling, sized: Sequence[Sized], gpus: Sequence[int]) -> Scaling:
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
        reason=_reason(fit, projections, found),
    )


def _projection(fit: Fit, gpus: int, base: Sized, largest: Sized, points: Sequence[ScalingPoint]) -> Projection | None:
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


def _reason(fit: Fit, projections: Sequence[Projection], found: Scaling) -> str:
    sizes = ", ".join(map(str, sorted({point.gpus for point in found.points})))
    if not projections:
        unknown = f"Without repeats at {sizes} {found.worker}s nobody can tell how far the fit may be off"
        return f"{unknown}, so nothing is projected: run each number twice."
    last = projections[-1]
    growth_ms, growing = max(zip(fit.growth_ms(found.points[-1].gpus, last.gpus), PARTS[1:], strict=True))
    grows = f"{growing} is what grows most on the way" if growth_ms > 0 else "nothing in a step grows with their number"
    if fit.sizes == 2 and growth_ms > 0:
        grows = "whether bandwidth or latency grows cannot be told by two numbers"
    efficiency = f"{100 * last.efficiency:.0f} % efficiency"
    bound = f"a step on {last.gpus} is bound by {last.bound_by}, its largest part"
    return f"By the runs on {sizes} {found.worker}s, {bound}, and {grows}: {efficiency} there."
