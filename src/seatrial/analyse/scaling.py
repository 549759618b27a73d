"""How throughput grows with the number of GPUs.

In: groups that differ in their number of GPUs. Out: a `Scaling` for each family (groups that differ in nothing else): total and per-GPU
throughput and efficiency with intervals on logs, a fit of compute, bandwidth and latency with what it projects, one sentence on the
bottleneck, and cautions where they differ in more than their number of GPUs. Confounded groups are not scaled (analyse.confounding). On
machines without GPUs, ranks are counted.

    T(N) = compute · w(N) + bandwidth · (N - 1) / N + latency · log2(N)

w is the work of one GPU over that at the smallest number: 1 for weak scaling, less for strong. A ring passes (N - 1) / N of the data over
every link, twice; a tree has log2(N) levels. Errors are shares of a time, so every row is weighed by its own. Two sizes cannot separate
bandwidth from latency: each alone is fitted, and a projection's interval holds both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from seatrial.analyse.comparable import RATE_OF, UNLIKE_SAMPLES, all_comparable
from seatrial.analyse.comparison import pair_runs
from seatrial.analyse.confounding import confounded_sentence, confounding
from seatrial.analyse.groups import compared_facts, machine_problem, own_settings
from seatrial.analyse.statistics import estimate, paired_difference, ratio_interval, ratio_of
from seatrial.core.errors import RefusedError
from seatrial.core.text import count, join_names
from seatrial.records.comparison import ComparedGroup, ComparedRun, Projection, Scaling, ScalingPoint
from seatrial.records.figures import ANY_THROUGHPUT, FIGURES, RATES
from seatrial.records.measure import Estimate

Floats = npt.NDArray[np.float64]
TIMES_LARGEST = 8
"""Projections go up to this many times the largest number that was run: beyond it other limits set in."""
Settings = tuple[tuple[str, str], ...]
BY_STEPS = "steps_per_s"
SAME_WORK = 0.1
"""Smaller differences in the work of a step count as equal: lengths of samples vary."""
PARTS = ("compute", "bandwidth", "latency")
RESAMPLES = 300
"""Enough to know the 2.5 % and 97.5 % points to a few percent of the interval's width."""
ROUNDING = 1e-12
"""Share of the largest part that is only rounding."""
FIT_SEED = 7
LOW_PCT, HIGH_PCT = 2.5, 97.5
Model = tuple[int, ...]
"""Indices of the parts that are fitted."""
ALL_PARTS: Model = (0, 1, 2)
OF_TWO_SIZES: tuple[Model, ...] = ((0, 1), (0, 2))
MAX_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class SizedRuns:
    """All runs on one number of GPUs and nodes that have the rate."""

    groups: tuple[ComparedGroup, ...]
    metric: str
    rates: tuple[float, ...]
    """The rate of all GPUs together, by run."""
    steps_ms: tuple[float, ...]
    work: float
    """Work of one GPU in one step, in the metric's unit."""

    @property
    def gpus(self) -> int:
        return self.groups[0].world_size

    @property
    def nodes(self) -> int:
        return self.groups[0].nodes


@dataclass(frozen=True, kw_only=True)
class Projected:
    """The step time at a number of GPUs, in ms."""

    step_ms: float
    low_ms: float
    high_ms: float
    parts_ms: tuple[float, float, float]

    @property
    def largest(self) -> str:
        return PARTS[int(np.argmax(self.parts_ms))]


class Fit:
    """The parts of a step fitted to these runs, of at least two sizes."""

    def __init__(self, sized: Sequence[SizedRuns]) -> None:
        runs = [(each.gpus, each.work / sized[0].work) for each in sized for _ in each.steps_ms]
        self._rows = _rows([gpus for gpus, _ in runs], [work for _, work in runs])
        self._times = np.array([step_ms for each in sized for step_ms in each.steps_ms])
        self._repeats = [np.log(np.array(each.steps_ms)) for each in sized]
        self.sizes = len({each.gpus for each in sized})
        self.models: tuple[Model, ...] = (ALL_PARTS,) if self.sizes > 2 else OF_TWO_SIZES
        self.parts = _least_squares(self._rows, self._times, self.models[0])
        """compute, bandwidth and latency in ms; for two sizes the last is 0."""

    @cached_property
    def noise(self) -> tuple[float, int] | None:
        """Noise of one run as a share of its time, with its degrees of freedom: the spread of repeats, or the residuals of the fit if
        larger. None where there is neither."""
        found = [each for each in (self._of_repeats(), self._of_residuals()) if each is not None]
        return max(found, default=None)

    def _of_repeats(self) -> tuple[float, int] | None:
        dof = sum(len(logs) - 1 for logs in self._repeats)
        squares = sum(float(np.square(logs - logs.mean()).sum()) for logs in self._repeats)
        return (math.sqrt(squares / dof), dof) if dof else None

    def _of_residuals(self) -> tuple[float, int] | None:
        dof = len(self._times) - int((self.parts > 0).sum())
        if dof < 1 or self.sizes < 3:
            return None
        residuals = np.log(self._times) - np.log(np.maximum(self._rows @ self.parts, 1e-12))
        return math.sqrt(float(np.square(residuals).sum()) / dof), dof

    @cached_property
    def _samples(self) -> Floats:
        """Parts fitted to resampled times, for every model."""
        assert self.noise is not None, "an interval needs noise"
        sd, dof = self.noise
        chance = np.random.default_rng(FIT_SEED)
        # The spread of few repeats is uncertain: Student's t has longer tails for that.
        factors = np.exp(sd * chance.standard_t(dof, (RESAMPLES, len(self._times))))
        return np.array([_least_squares(self._rows, self._times * row, model) for model in self.models for row in factors])

    def at(self, gpus: int, work: float) -> Projected | None:
        """The projected step; None where neither repeats nor a third size show the error of the fit."""
        if self.noise is None:
            return None
        row = _rows([gpus], [work])[0]
        central = [float(row @ _least_squares(self._rows, self._times, model)) for model in self.models]
        low_ms, high_ms = np.percentile(self._samples @ row, (LOW_PCT, HIGH_PCT)).tolist()
        step_ms = math.exp(sum(map(math.log, central)) / len(central))
        compute, bandwidth, latency = (row * self.parts).tolist()
        return Projected(
            step_ms=step_ms, low_ms=min(low_ms, step_ms), high_ms=max(high_ms, step_ms), parts_ms=(compute, bandwidth, latency)
        )

    def growth_ms(self, start: int, end: int) -> tuple[float, float]:
        """What bandwidth and latency add to a step between two numbers of GPUs."""
        first, last = _rows([start, end], [1.0, 1.0])
        _, bandwidth, latency = ((last - first) * self.parts).tolist()
        return bandwidth, latency


def scaling(
    groups: Sequence[ComparedGroup], metric: str = ANY_THROUGHPUT, *, gpus: Sequence[int] = (), allow_confounded: bool = False
) -> Scaling:
    """Points in the order of GPUs, and projections to `gpus`, by default the next powers of two."""
    name = _metric(groups, metric)
    # GPUs are counted, or ranks where a machine has none or that is unknown.
    worker = "GPU" if groups and all(group.machine.get("gpu_name", "none") != "none" for group in groups) else "rank"
    if name is None:
        reason = f"'{metric}' is not a rate that grows with {worker}s: choose throughput, {', '.join(RATES)}."
        return Scaling(metric=metric, unit="", points=(), reason=reason, worker=worker)
    rate = FIGURES[name].unit
    confounded = next(filter(None, (confounding(one, other) for one, other in combinations(groups, 2))), None)
    if confounded and not allow_confounded:
        reason = f"Groups cannot be compared: {confounded_sentence(confounded)}."
        return Scaling(metric=name, unit=rate, points=(), reason=reason, worker=worker)
    # More ranks are more work in a step, which is what scaling is about; a sample must be the same.
    mismatch = next((each for each in all_comparable(groups).mismatches if each.kind == UNLIKE_SAMPLES and name in each.metrics), None)
    if mismatch:
        reason = f"{rate} cannot be compared between these groups: {mismatch.text}. Let them report tokens, or scale groups of one size."
        return Scaling(metric=name, unit=rate, points=(), reason=reason, worker=worker)
    sized = by_size(groups, name)
    unit = f"{worker} {rate}" if name == BY_STEPS else rate
    found = Scaling(metric=name, unit=unit, points=(), worker=worker)
    if not sized:
        return replace(found, reason=f"No run has {name}: run the groups again, or choose another metric.")
    points = tuple(_point(each, sized[0]) for each in sized)
    having = [group.name for each in sized for group in each.groups]
    cautions = scaling_cautions(groups, points, having=having, metric=name, worker=worker)
    mark = [f"Confounded, but compared anyway: {confounded.text}."] if confounded else []
    found = replace(found, points=points, cautions=(*mark, *cautions))
    if not found.is_measured:
        alone = f"All groups ran on {count(points[0].gpus, worker)}"
        return replace(found, reason=f"{alone}: run at least one other number of {worker}s for a fit.")
    return _fitted(found, sized, gpus or _next_sizes(points[-1].gpus))


def _metric(groups: Sequence[ComparedGroup], metric: str) -> str | None:
    """The rate; for `throughput` samples if most runs have them, else tokens, else steps. If the size of a sample differs, tokens or
    seconds of audio that all runs have."""
    if metric != ANY_THROUGHPUT:
        return metric if metric in RATES else None
    work = all_comparable(groups)
    for name in RATE_OF.values() if work.why_not("samples_per_s") else ():
        if not work.why_not(name) and all(rate_of(run, name) for group in groups for run in group.runs):
            return name
    runs = [run for group in groups for run in group.runs]
    return next((name for name in RATES if 2 * sum(rate_of(run, name) is not None for run in runs) > len(runs)), "steps_per_s")


def _next_sizes(largest: int) -> list[int]:
    """Powers of two above the largest number that was run, up to TIMES_LARGEST times it."""
    first = 1 << largest.bit_length()
    return [first << shift for shift in range(TIMES_LARGEST.bit_length()) if first << shift <= TIMES_LARGEST * largest]


def _fitted(found: Scaling, sized: Sequence[SizedRuns], gpus: Sequence[int]) -> Scaling:
    base, largest = sized[0], sized[-1]
    fit = Fit(sized)
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


def _projection(fit: Fit, gpus: int, base: SizedRuns, largest: SizedRuns, points: Sequence[ScalingPoint]) -> Projection | None:
    """The projection: weak scaling keeps each GPU's work at the largest number that was run, strong scaling the total."""
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
        return (
            f"Without repeats at {sizes} {found.worker}s the error of the fit is unknown, so nothing is projected: run each number twice."
        )
    last = projections[-1]
    growth_ms, growing = max(zip(fit.growth_ms(found.points[-1].gpus, last.gpus), PARTS[1:], strict=True))
    grows = f"{growing} grows most" if growth_ms > 0 else "no part of a step grows with their number"
    if fit.sizes == 2 and growth_ms > 0:
        grows = "two numbers cannot separate bandwidth from latency"
    efficiency = f"{100 * last.efficiency:.0f} % efficiency"
    bound = f"a step on {last.gpus} is bound by {last.bound_by}"
    return f"From the runs on {sizes} {found.worker}s: {bound}, and {grows}; {efficiency} there."


def scaling_families(
    groups: Sequence[ComparedGroup],
    metric: str = ANY_THROUGHPUT,
    *,
    gpus: Sequence[int] = (),
    across: bool = False,
    allow_confounded: bool = False,
) -> list[Scaling]:
    """The scaling of each family, in the order in which they first appear; a RefusedError for different machines."""
    refused = "" if across else machine_problem(groups)
    if refused:
        raise RefusedError(refused)
    families = _split_families(groups)
    names = _names(list(families))
    return [
        replace(scaling(members, metric, gpus=gpus, allow_confounded=allow_confounded), family=names[key])
        for key, members in families.items()
    ]


def _split_families(groups: Sequence[ComparedGroup]) -> dict[Settings, list[ComparedGroup]]:
    """Groups by their settings. If every group has its own number of ranks and its own settings, all are one family: strong scaling has
    another batch at every number."""
    families: dict[Settings, list[ComparedGroup]] = {}
    for group in groups:
        families.setdefault(tuple(sorted(own_settings(group).items())), []).append(group)
    sizes = [group.world_size for group in groups]
    if len(set(sizes)) == len(sizes) > 1 and len(families) == len(sizes):
        return {(): list(groups)}
    return families


def worst_family(found: Sequence[Scaling]) -> Scaling | None:
    """The family with the lowest efficiency at its largest number of GPUs; the first where none was run on two numbers."""
    measured = [one for one in found if one.is_measured]
    if not measured:
        return found[0] if found else None
    worst = min(measured, key=lambda one: one.points[-1].efficiency.mean)
    if len(found) == 1:
        return worst
    without = [one.family for one in found if one.points and not one.is_measured]
    cautions = [f"Ran at one {worst.worker} count only, so their scaling is unknown: {'; '.join(without)}."] if without else []
    cautions += [f"{one.family}: scaling unknown. {one.reason}" for one in found if not one.points]
    return replace(
        worst,
        reason=f"{worst.family}, the worst of {len(found)} configurations: {worst.reason}",
        cautions=(*worst.cautions, *cautions),
    )


def _names(keys: Sequence[Settings]) -> Mapping[Settings, str]:
    """Names from the settings in which families differ; empty for a single family."""
    differing = set().union(*map(set, keys)) - set(keys[0]).intersection(*map(set, keys[1:])) if len(keys) > 1 else set()
    names = {key: [f"{name}={value}" for name, value in key if (name, value) in differing] for key in keys}
    return {key: join_names(settings) for key, settings in names.items()}


def rate_of(run: ComparedRun, name: str) -> float | None:
    """The run's rate; None unless it has steps/s too."""
    rate, steps = run.figures.get(name), run.figures.get(BY_STEPS)
    return rate if _is_rate(rate) and _is_rate(steps) else None


def _is_rate(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def by_size(groups: Sequence[ComparedGroup], name: str) -> list[SizedRuns]:
    """Runs by the number of GPUs, then of nodes; groups without the rate are left out."""
    together: dict[tuple[int, int], list[ComparedGroup]] = {}
    for group in groups:
        if group.ranks_known and group.world_size >= 1 and any(rate_of(run, name) is not None for run in group.runs):
            together.setdefault((group.world_size, group.nodes), []).append(group)
    return [_sized(together[size], name) for size in sorted(together)]


def _sized(groups: Sequence[ComparedGroup], name: str) -> SizedRuns:
    having = [(rate, run.figures[BY_STEPS]) for group in groups for run in group.runs if (rate := rate_of(run, name)) is not None]
    gpus = groups[0].world_size
    rates = tuple(_total(rate, name, gpus) for rate, _ in having)
    return SizedRuns(
        groups=tuple(groups),
        metric=name,
        rates=rates,
        steps_ms=tuple(1000 / per_s for _, per_s in having),
        work=sum(rates) / sum(per_s for _, per_s in having) / gpus,
    )


def _total(rate: float, name: str, gpus: int) -> float:
    """The rate of all GPUs. With steps alone each GPU is assumed to do the same work, and a step of N GPUs counts as N."""
    return rate * gpus if name == BY_STEPS else rate


def _point(each: SizedRuns, base: SizedRuns) -> ScalingPoint:
    return ScalingPoint(
        gpus=each.gpus,
        nodes=each.nodes,
        group=" + ".join(dict.fromkeys(group.group for group in each.groups)),
        source=" + ".join(dict.fromkeys(group.source for group in each.groups)),
        value=_estimate(each.rates),
        per_gpu=_per_gpu(each),
        # Relative to itself there is no interval.
        efficiency=Estimate(mean=1.0, n=len(base.rates)) if each is base else _efficiency(each, base),
        step_ms=_estimate(each.steps_ms).mean,
        runs=len(each.rates),
        weak=_is_weak(each, base),
    )


def _efficiency(each: SizedRuns, base: SizedRuns) -> Estimate:
    """Throughput per GPU over that of the smallest number: by pairs where the runs are paired, else by Welch."""
    alone = len(each.groups) == len(base.groups) == 1
    pairs = pair_runs(base.groups[0], each.groups[0]) if alone else []
    logs = [(_log_per_gpu(one, base), _log_per_gpu(other, each)) for one, other in pairs]
    known = [(before, after) for before, after in logs if before is not None and after is not None]
    difference = paired_difference([before for before, _ in known], [after for _, after in known]) if len(known) == len(pairs) else None
    return ratio_interval(difference) if difference is not None else ratio_of(_per_gpu(each), _per_gpu(base))


def _log_per_gpu(run: ComparedRun, of: SizedRuns) -> float | None:
    rate = rate_of(run, of.metric)
    return None if rate is None else math.log(_total(rate, of.metric, of.gpus) / of.gpus)


def _per_gpu(each: SizedRuns) -> Estimate:
    return _estimate([rate / each.gpus for rate in each.rates])


def _estimate(values: Sequence[float]) -> Estimate:
    found = estimate(values)
    assert found is not None, "rates above 0 have a mean"
    return found


def _is_weak(each: SizedRuns, base: SizedRuns) -> bool:
    """Whether the work of one GPU, rather than the total, is that of the smallest number."""
    own, whole = abs(each.work / base.work - 1), abs(each.work * each.gpus / (base.work * base.gpus) - 1)
    return bool(own <= max(SAME_WORK, whole))


def _rows(gpus: Sequence[int], work: Sequence[float]) -> Floats:
    counts = np.array(gpus, dtype=np.float64)
    return np.column_stack([np.array(work), (counts - 1) / counts, np.log2(counts)])


def _least_squares(rows: Floats, times: Floats, model: Model) -> Floats:
    """Parts by least squares of relative errors, none below 0; parts outside the model are 0."""
    # Imported here: it takes a quarter of a second, and most campaigns have one number of GPUs.
    from scipy.optimize import nnls

    found = np.zeros(len(PARTS))
    found[list(model)] = nnls(rows[:, list(model)] / times[:, None], np.ones(len(times)))[0]
    found[found < ROUNDING * found.max()] = 0.0
    return found


def scaling_cautions(
    groups: Sequence[ComparedGroup], points: Sequence[ScalingPoint], *, having: Sequence[str], metric: str, worker: str
) -> tuple[str, ...]:
    """All cautions, the gravest first. `worker` is what is counted, GPU or rank."""
    return (
        *_differences("machines", {group.name: compared_facts(group.machine) for group in groups}),
        *_differences("settings", {group.name: own_settings(group) for group in groups}),
        *_differences("code", {group.name: group.code for group in groups}),
        *_differences("settings in effect", {group.name: group.effective for group in groups}),
        *_debug(groups),
        *_work(points, metric, worker),
        *_pooled(groups, worker),
        *_nodes(groups, points),
        *_single_runs(points, worker),
        *_incomplete(groups, having, metric),
    )


def _differences(what: str, facts: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """A sentence with the facts that differ between groups that have them."""
    names = sorted({name for having in facts.values() for name in having})
    differing = []
    for name in names:
        values = sorted({having[name] for having in facts.values() if name in having})
        if len(values) > 1:
            differing.append(f"{name} {' / '.join(values)}")
    if differing:
        yield f"The groups differ in their {what} too ({join_names(differing, MAX_SHOWN, '; ')}), which affects the scaling."


def _debug(groups: Sequence[ComparedGroup]) -> Iterator[str]:
    found = [f"{group.name} ({', '.join(group.debug)})" for group in groups if group.debug]
    if found:
        yield f"Debug settings were on in {', '.join(found)}: run again without them, since their cost grows with the ranks."


def _work(points: Sequence[ScalingPoint], metric: str, worker: str) -> Iterator[str]:
    if metric == "steps_per_s":
        yield f"The runs have neither samples nor tokens: each {worker} is assumed to do the same work per step at every number."
    beyond = [point for point in points if point.gpus > points[0].gpus]
    if beyond and len({point.weak for point in beyond}) > 1:
        yield f"Weak and strong scaling are mixed: the fit assumes that compute is proportional to the work of one {worker}."
    elif beyond and not beyond[0].weak:
        yield f"Strong scaling: compute is assumed to shrink with the work of one {worker}."


def _pooled(groups: Sequence[ComparedGroup], worker: str) -> Iterator[str]:
    """A caution for several groups of one number, which is right only for repeats of one configuration."""
    counts = [(group.world_size, group.nodes) for group in groups]
    doubled = sorted({size for size in counts if counts.count(size) > 1})
    if doubled:
        names = ", ".join(
            dict.fromkeys(f"{group.group} ({group.source})" for group in groups if (group.world_size, group.nodes) == doubled[0])
        )
        yield f"Several groups ran on {count(doubled[0][0], worker)}, and their runs are pooled: {names}."


def _nodes(groups: Sequence[ComparedGroup], points: Sequence[ScalingPoint]) -> Iterator[str]:
    nodes = sorted({point.nodes for point in points})
    if len(nodes) > 1:
        counts = ", ".join(map(str, nodes))
        yield f"The groups ran on {counts} nodes: bandwidth and latency between nodes differ from those within one, and one fit mixes them."
        return
    hosts = {group.machine.get("host", "") for group in groups}
    if len(hosts) == 1 and "" not in hosts and len({point.gpus for point in points}) > 1:
        node = f"All groups ran from host {hosts.pop()}"
        yield f"{node}: projections beyond one node assume a network as fast as the links inside it."


def _single_runs(points: Sequence[ScalingPoint], worker: str) -> Iterator[str]:
    alone = [point.gpus for point in points if point.runs < 2]
    if alone:
        yield f"A single run on {', '.join(map(str, alone))} {worker}{'s' * (alone != [1])} has no interval: repeat it."


def _incomplete(groups: Sequence[ComparedGroup], having: Sequence[str], metric: str) -> Iterator[str]:
    pending = [f"{group.name} ({len(group.pending)})" for group in groups if group.pending]
    if pending:
        yield f"Pending runs: {', '.join(pending)}."
    without = [group.name for group in groups if group.name not in having]
    if without:
        yield f"No run of {', '.join(without)} has {metric} and steps_per_s: left out."
    unsteady = [group.name for group in groups if any(not run.steady for run in group.runs)]
    if unsteady:
        yield f"Runs without a steady state in {', '.join(unsteady)}."
    counts = [(group.name, group.failed_runs + len(group.infrastructure_failures)) for group in groups]
    failed = [f"{name} ({number})" for name, number in counts if number]
    if failed:
        yield f"Failed runs, not counted: {', '.join(failed)}."
