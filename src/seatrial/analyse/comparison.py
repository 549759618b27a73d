"""A candidate compared with a baseline: faster, slower, the same, or ambiguous.

In: two groups (A the baseline, B the candidate), the metric, and the margin that does not matter. Out: a `Comparison` each. Runs of one
campaign that were interleaved are paired by repeat (paired t), others are compared by Welch's t, both on logs; which one depends on how the
runs were scheduled, never on their figures. The interval decides: SAME where it lies wholly within the margin; else FASTER or SLOWER where
it excludes 1 and its mean lies beyond the margin; else AMBIGUOUS. Several comparisons at once are corrected by Holm. Where they ran on
different numbers of ranks, rates are per GPU, or per rank where there are none. Groups that ran the same in effect are refused, and so are
confounded ones unless that is allowed; of several pairs the others are compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from seatrial.analyse.comparable import A_STEP, UNLIKE_SAMPLES, comparable, comparable_work
from seatrial.analyse.confounding import NO_EFFECT, refusal, reported_by_one, settings_differences, settings_without_effect
from seatrial.analyse.groups import (
    changes_text,
    differences,
    machine_differences,
    settings_text,
    why_not_comparable,
)
from seatrial.analyse.losses import loss_parity
from seatrial.analyse.statistics import (
    ALPHA,
    MAX_REPEATS,
    Difference,
    bootstrap_ratio,
    contains_one,
    detectable_pct,
    estimate,
    holm_correction,
    p_value,
    paired_difference,
    ratio_interval,
    repeats_needed,
    welch_difference,
)
from seatrial.core.errors import RefusedError, UsageError, did_you_mean
from seatrial.core.text import MAX_IN_PASSING, count, join_names
from seatrial.machine.secrets import MASK
from seatrial.records.comparison import Assumed, ComparedGroup, ComparedRun, Comparison, LossParity, LossVerdict, Mismatch, Relation
from seatrial.records.figures import ANY_THROUGHPUT, FIGURES, MEASURED, RATES, THROUGHPUT, Figure
from seatrial.records.measure import Estimate
from seatrial.records.ranking import CONFOUNDED

MARGIN_PCT = 1.0
# Compared with a caution where a step does not do the same work in both.
STEP_TIME_AND_JITTER = ("wall_p50_ms", "wall_p90_over_p50")
MIN_RUNS = 2
LARGEST_DETECTABLE_PCT = 1000.0
"""A smallest detectable difference above this only shows that there are too few runs."""
WIDEST_INTERVAL = 100
"""Upper over lower end; beyond it there are too few runs."""
# p90/p50 of a run that changed its pace is small where most of its steps were slow; unsteady steps are taken to vary by at least this.
MIN_VARIATION = 1.25
# On logs. A nanosecond clock over a minute resolves no more.
SMALLEST_SPREAD = 1e-10
# Stage 1's rules for a winner. They ignore chance and name a winner even between equals: they are reported, but the interval decides.
LAST50, HIGHEST_MEAN = "last50", "highest_mean"
PRESETS = (LAST50, HIGHEST_MEAN)
# Digits of the rates that stage 1's logs print and their rules compare.
TIE_DIGITS = 4


def compare_pairs(
    pairs: Sequence[tuple[ComparedGroup, ComparedGroup]],
    *,
    metric: str = ANY_THROUGHPUT,
    margin_pct: float = MARGIN_PCT,
    preset: str = "",
    across: bool = False,
    allow_confounded: bool = False,
    family: int | None = None,
) -> tuple[Comparison, ...]:
    """B against A of every pair. `family` is the number of comparisons these were chosen from, where that is more: a baseline picked for
    being the best was compared with all groups."""
    if preset and preset not in PRESETS:
        raise UsageError(f"preset '{preset}' is unknown; {did_you_mean(preset, PRESETS)}")
    all_prepared = [_prepare(a, b, metric, across=across, allow_confounded=allow_confounded) for a, b in pairs]
    if all_prepared and all(one.refused for one in all_prepared):
        raise RefusedError(all_prepared[0].refused)
    p_values = [p_value(one.difference) if one.difference and not one.problem else None for one in all_prepared]
    tested = max(family or 0, sum(p is not None for p in p_values), 1)
    divisors, corrected = holm_correction(p_values, tested)
    return tuple(
        _compared(one, margin_pct, preset, tested, confidence=1 - ALPHA / divisor, p=p)
        for one, divisor, p in zip(all_prepared, divisors, corrected, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Two groups, what is compared of them, and their difference."""

    a: ComparedGroup
    b: ComparedGroup
    """With the runs that have the metric, and rates per GPU where the numbers of ranks differ."""
    metric: Figure
    logs_a: list[float]
    logs_b: list[float]
    paired: bool
    difference: Difference | None
    loss: LossParity
    left_out: tuple[str, ...]
    """Runs without the metric."""
    mismatch: Mismatch | None
    """Whether they ran the same in effect or are confounded; None where all else is equal."""
    assumed: Assumed | None
    """What must hold for the figure to mean the same in both."""
    allow_confounded: bool

    @property
    def refused(self) -> str:
        """Why the two are not compared at all; empty where they are."""
        return refusal(self.mismatch, allow_confounded=self.allow_confounded)

    @property
    def problem(self) -> str:
        """Why there is no result, whatever the figures; empty where the interval decides."""
        known = (
            self.refused
            or _platform_failures(self.a, self.b)
            or _too_few_runs(self.a, self.b)
            or _may_have_failed(self.a, self.b)
            or _work_mismatch(self.a, self.b, self.metric)
        )
        if known or self.difference is None or self.difference.spread > SMALLEST_SPREAD:
            return known
        return "every repeat gives exactly the same result: figures are rounded or copied, so their noise is unknown"


def _prepare(a: ComparedGroup, b: ComparedGroup, metric_name: str, *, across: bool, allow_confounded: bool) -> _Prepared:
    refused = why_not_comparable(a, b, across=across)
    if refused:
        raise RefusedError(refused)
    found = comparable(a, b)
    metric, loss = common_metric(a, b, metric_name), loss_parity(a, b, found.without(CONFOUNDED) if allow_confounded else found)
    left_out = tuple(run.run for group in (a, b) for run in group.runs if not _has_metric(run, metric.name))
    a, b = (replace(group, runs=tuple(run for run in group.runs if _has_metric(run, metric.name))) for group in (a, b))
    if a.world_size != b.world_size:
        if unknown := [group.name for group in (a, b) if not group.ranks_known]:
            raise RefusedError(f"the number of ranks of {' and '.join(unknown)} is unknown, so that figures per GPU cannot be compared")
        a, b = _per_gpu(a), _per_gpu(b)
        worker = "GPU" if all(group.machine.get("gpu_name", "none") != "none" for group in (a, b)) else "rank"
        metric = replace(metric, unit=f"{metric.unit} per {worker}") if metric.name in RATES else metric
    pairs = pair_runs(a, b)
    runs_a, runs_b = ([one for one, _ in pairs], [other for _, other in pairs]) if pairs else (list(a.runs), list(b.runs))
    logs_a, logs_b = ([math.log(run.figures[metric.name]) for run in runs] for runs in (runs_a, runs_b))
    difference = paired_difference(logs_a, logs_b) if pairs else welch_difference(logs_a, logs_b)
    return _Prepared(
        a=a,
        b=b,
        metric=metric,
        logs_a=logs_a,
        logs_b=logs_b,
        paired=bool(pairs),
        difference=difference,
        loss=loss,
        left_out=left_out,
        mismatch=found.of_kind(NO_EFFECT) or found.of_kind(CONFOUNDED),
        assumed=found.without(CONFOUNDED).assumption(metric.name),
        allow_confounded=allow_confounded,
    )


def common_metric(a: ComparedGroup, b: ComparedGroup, metric: str) -> Figure:
    """The metric, which both must have; for throughput the first of samples/s, tokens/s, s of audio/s, steps/s and the duration that both
    have, preferably one that means the same in both."""
    if metric != ANY_THROUGHPUT and metric not in MEASURED:
        raise UsageError(f"metric '{metric}' is not a metric to compare by; {did_you_mean(metric, [ANY_THROUGHPUT, *MEASURED])}")
    names = THROUGHPUT if metric == ANY_THROUGHPUT else (metric,)
    both = [name for name in names if _enough_have(a, name) and _enough_have(b, name)]
    if both:
        work = comparable_work(a, b)
        return FIGURES[next((name for name in both if not work.why_not(name)), both[0])]
    own = [(group.name, [name for name in MEASURED if group.runs and _enough_have(group, name)]) for group in (a, b)]
    had = "; ".join(f"{name} has {', '.join(metrics) or 'none of them'}" for name, metrics in own)
    raise RefusedError(f"{a.name} and {b.name} have no {metric} in common: {had}. Name a --metric that both have, or run them again")


def pair_runs(a: ComparedGroup, b: ComparedGroup) -> list[tuple[ComparedRun, ComparedRun]]:
    """The runs of both by repeat, where they were interleaved: one campaign, the same repeats, and every round over before the next began.
    Empty where they are not paired."""
    by_a, by_b = ({run.repeat: run for run in group.runs} for group in (a, b))
    if not a.campaign or a.campaign != b.campaign or by_a.keys() != by_b.keys() or len(by_a) < MIN_RUNS:
        return []
    if len(by_a) < len(a.runs) or len(by_b) < len(b.runs):
        return []
    pairs = [(by_a[repeat], by_b[repeat]) for repeat in sorted(by_a)]
    return pairs if _interleaved(pairs) else []


def _interleaved(pairs: Sequence[tuple[ComparedRun, ComparedRun]]) -> bool:
    """Whether every round was over before the next began; without start times, repeat numbers are trusted."""
    starts = [(min(one.started_t, other.started_t), max(one.started_t, other.started_t)) for one, other in pairs]
    if any(first <= 0 for first, _ in starts):
        return True
    return all(last < following for (_, last), (following, _) in pairwise(starts))


def _per_gpu(group: ComparedGroup) -> ComparedGroup:
    """Divide all rates by the number of ranks, so that the work of a step, a ratio of two rates, does not change."""
    runs, ranks = [], group.world_size
    for run in group.runs:
        figures = {name: value / ranks if name in RATES else value for name, value in run.figures.items()}
        last = replace(run.last_steps, per_s=run.last_steps.per_s / ranks) if run.last_steps else None
        runs.append(replace(run, figures=figures, last_steps=last))
    return replace(group, runs=tuple(runs))


def _enough_have(group: ComparedGroup, name: str) -> bool:
    """Whether every run has the figure, or most and enough for an interval. A group without runs lacks nothing."""
    having = sum(_has_metric(run, name) for run in group.runs)
    return having == len(group.runs) or (having >= MIN_RUNS and 2 * having > len(group.runs))


def _has_metric(run: ComparedRun, name: str) -> bool:
    value = run.figures.get(name)
    return value is not None and math.isfinite(value) and value > 0


def _compared(prepared: _Prepared, margin_pct: float, preset: str, comparisons: int, *, confidence: float, p: float | None) -> Comparison:
    """`p` is corrected for the number of comparisons."""
    a, b, metric = prepared.a, prepared.b, prepared.metric
    problem, difference = prepared.problem, None if prepared.problem else prepared.difference
    ratio = ratio_interval(difference, confidence) if difference else None
    if ratio and (unsteady := _unsteady_problem(a, b, ratio)):
        problem, difference, ratio = unsteady, None, None
    ends = bootstrap_ratio(prepared.logs_a, prepared.logs_b, paired=prepared.paired) if difference else None
    method = _method(prepared, difference, comparisons)
    compared = Comparison(
        a=a.name,
        b=b.name,
        metric=metric.name,
        unit=metric.unit,
        higher_is_better=metric.higher_is_better,
        relation=_relation(ratio, metric, margin_pct),
        reason="",
        method=method,
        value_a=estimate([math.exp(log) for log in prepared.logs_a]),
        value_b=estimate([math.exp(log) for log in prepared.logs_b]),
        ratio=ratio,
        confidence=confidence,
        bootstrap_low=ends[0] if ends else None,
        bootstrap_high=ends[1] if ends else None,
        chance=p if difference else None,
        comparisons=comparisons,
        detectable_pct=_detectable_pct(difference, confidence),
        margin_pct=margin_pct,
        loss=prepared.loss,
        blocked=_platform_failures(a, b),
        differs=differences(a, b),
        settings_apart=settings_differences(a, b),
        condition=prepared.assumed.clause("in both") if prepared.assumed and ratio else "",
        cautions=(*_confounding_cautions(prepared), *_group_cautions(a, b, metric), *_run_cautions(prepared, decided=ratio is not None)),
        confounded=prepared.mismatch.text if prepared.mismatch and prepared.mismatch.kind == CONFOUNDED else "",
    )
    reason = f"{_condition(prepared.assumed) if ratio else ''}{_reason(compared, difference, problem)}"
    # A rule that ignores chance must not name a winner of groups that are not compared.
    ruling = "" if prepared.refused else _preset_winner_text(preset, a, b, metric)
    return replace(
        compared,
        reason=" ".join(filter(None, (ruling, reason, _confounded_mark(prepared) if ratio else ""))),
        method="; ".join(filter(None, (preset and f"preset {preset}", method))),
    )


def _detectable_pct(difference: Difference | None, confidence: float) -> float | None:
    """None where these runs would not even show a change of LARGEST_DETECTABLE_PCT."""
    found = detectable_pct(difference, confidence) if difference else None
    return found if found is not None and found <= LARGEST_DETECTABLE_PCT else None


def _relation(ratio: Estimate | None, metric: Figure, margin_pct: float) -> Relation:
    if ratio is None or ratio.low is None or ratio.high is None:
        return Relation.AMBIGUOUS
    margin = 1 + margin_pct / 100
    if 1 / margin <= ratio.low and ratio.high <= margin:
        return Relation.SAME
    if ratio.low <= 1.0 <= ratio.high or 1 / margin <= ratio.mean <= margin:
        return Relation.AMBIGUOUS
    return Relation.FASTER if (ratio.mean > 1) is metric.higher_is_better else Relation.SLOWER


def _platform_failures(a: ComparedGroup, b: ComparedGroup) -> str:
    """Runs that failed because of the platform; empty where there are none."""
    failed = [*a.infrastructure_failures, *(run for run in b.infrastructure_failures if run not in a.infrastructure_failures)]
    if not failed:
        return ""
    return f"{join_names(failed, MAX_IN_PASSING)} failed because of the platform: run {'it' if len(failed) == 1 else 'them'} again first"


def _too_few_runs(a: ComparedGroup, b: ComparedGroup) -> str:
    for runs, lack in ((0, "no run that counts"), (1, "one run only")):
        few = [group.name for group in (a, b) if len(group.runs) == runs]
        if few:
            return f"{' and '.join(few)} {'has' if len(few) == 1 else 'have'} {lack}, so there is no interval: use repeats: 3 or more"
    return ""


def _may_have_failed(a: ComparedGroup, b: ComparedGroup) -> str:
    found = [f"{group.may_have_failed} of {len(group.runs)} runs of {group.name}" for group in (a, b) if group.may_have_failed]
    return f"{' and '.join(found)} may have failed: they exited 0 after a traceback or after too few steps" if found else ""


def _work_mismatch(a: ComparedGroup, b: ComparedGroup, metric: Figure) -> str:
    """Why this figure means nothing for these two; empty where it does."""
    work = comparable_work(a, b)
    reason = work.why_not(metric.name)
    if not reason:
        return ""
    if work.mismatches[0].kind == UNLIKE_SAMPLES:
        return f"{reason}: let both report tokens, or set workload.tokens_per_step, and compare by tokens_per_s"
    what = "a run" if metric.name == "duration_s" else "a step"
    return (
        f"{reason}, so {what} does not do the same work in both: set workload.samples_per_step, or let the script report samples, and "
        "compare by samples_per_s"
    )


def _unsteady_runs(a: ComparedGroup, b: ComparedGroup) -> list[ComparedRun]:
    return [run for group in (a, b) for run in group.runs if not run.steady]


def _unsteady_problem(a: ComparedGroup, b: ComparedGroup, ratio: Estimate) -> str:
    """Why runs without a steady state decide nothing; empty where all have one, or where the whole interval lies beyond the variation of
    their steps."""
    unsteady = _unsteady_runs(a, b)
    if not unsteady:
        return ""
    variation, names = _variation(unsteady), join_names([run.run for run in unsteady], MAX_IN_PASSING)
    if variation is None or ratio.low is None or ratio.high is None:
        return f"no steady state was found in {names}: run more steps"
    if ratio.low > variation or ratio.high < 1 / variation:
        return ""
    vary = f"whose steps vary by up to {_per_cent((variation - 1) * 100)}"
    return f"no steady state was found in {names}, {vary}, which may explain the difference: run more steps"


def _variation(unsteady: Sequence[ComparedRun]) -> float | None:
    """The factor by which steps of these runs may differ; None where one is unknown. p90/p50 covers the slower half only, so it is squared:
    a run that drifts has a faster half that is as far off."""
    spreads = [run.figures.get("wall_p90_over_p50") for run in unsteady]
    known = [spread for spread in spreads if spread is not None and math.isfinite(spread)]
    return max(MIN_VARIATION, max(known) ** 2) if len(known) == len(spreads) else None


def _confounded_mark(prepared: _Prepared) -> str:
    """The sentence after a result of confounded groups that was allowed."""
    found = prepared.mismatch
    return f"Confounded by {found.setting}, which may explain the difference." if found and not prepared.refused else ""


def _condition(assumed: Assumed | None) -> str:
    """The clause before a result that holds only under an assumption."""
    if assumed is None:
        return ""
    key = "samples_per_step" if assumed.what == A_STEP else "tokens_per_step"
    clause = assumed.clause("in both")
    return f"{clause[0].upper()}{clause[1:]} ({join_names(assumed.settings, MAX_IN_PASSING, ' or ')} may change it: set workload.{key}): "


def _confounding_cautions(prepared: _Prepared) -> Iterator[str]:
    """What weakens the comparison in the settings, as far as it is known and does not rule it out."""
    if prepared.refused:
        return
    if found := prepared.mismatch:
        yield f"Confounded, but compared anyway: {found.text}. Better {found.remedy}, and run both again."
    yield from (f"{text}." for text in settings_without_effect(prepared.a, prepared.b))
    if text := reported_by_one(prepared.a, prepared.b):
        yield f"{text[0].upper()}{text[1:]}."
    a, b = prepared.a.settings, prepared.b.settings
    if masked := [name for name in a if a[name] == b.get(name) and MASK in a[name]]:
        yield f"{join_names(masked, MAX_IN_PASSING)} is masked in both: whether the values are the same is unknown."


def _group_cautions(a: ComparedGroup, b: ComparedGroup, metric: Figure) -> Iterator[str]:
    """What weakens the comparison in the groups, the gravest first."""
    machines = machine_differences(a, b)
    if machines:
        yield f"The machines differ ({changes_text(machines)}). The machines may explain the difference."
    elif not a.machine or not b.machine:
        unknown = " and ".join(group.name for group in (a, b) if not group.machine)
        yield f"The machine of {unknown} is unknown: the two may have run on different machines."
    for group in (a, b):
        if group.failed_runs:
            yield f"{count(group.failed_runs, 'run')} of {group.name} failed: only those that ended ok are compared."
        if group.pending:
            yield f"{count(len(group.pending), 'run')} of {group.name} {'is' if len(group.pending) == 1 else 'are'} pending."
    work = comparable_work(a, b)
    if metric.name in STEP_TIME_AND_JITTER and work.text and not work.why_not(metric.name):
        yield f"{metric.unit} is compared although {work.text}: a step does not do the same work."
    if metric.name in RATES and not work.why_not(metric.name) and (reason := work.why_not("samples_per_s")):
        yield f"{metric.unit} is compared, since samples/s cannot be: {reason}."
    if a.world_size != b.world_size:
        ranks = f"{a.name} ran on {count(a.world_size, 'rank')} and {b.name} on {b.world_size}"
        yield f"{ranks}: {metric.unit} is compared; `compare --scaling` shows how the total grows."
    if a.debug:
        yield f"Both were measured with {settings_text(a.debug)} on: neither is the figure of a plain run."


def _run_cautions(prepared: _Prepared, *, decided: bool) -> Iterator[str]:
    """What weakens the comparison in how its runs were measured."""
    if prepared.left_out:
        names, one = join_names(prepared.left_out, MAX_IN_PASSING), len(prepared.left_out) == 1
        yield f"{names} {'has' if one else 'have'} no {prepared.metric.unit} and {'is' if one else 'are'} left out."
    unsteady = _unsteady_runs(prepared.a, prepared.b)
    if decided and unsteady and (variation := _variation(unsteady)) is not None:
        names = join_names([run.run for run in unsteady], MAX_IN_PASSING)
        vary = f"their steps vary by up to {_per_cent((variation - 1) * 100)}"
        yield f"No steady state was found in {names}: {vary}, which is less than the difference."
    if prepared.paired or prepared.difference is None:
        return
    together = prepared.a.campaign == prepared.b.campaign
    why = "not in rounds with the same repeats" if together else "not in one campaign"
    yield f"The runs were not interleaved ({why}). Platform drift would look like a difference."


def _method(prepared: _Prepared, difference: Difference | None, comparisons: int) -> str:
    """`paired t on logs, 5 pairs`, with the correction where there is one; empty without an interval."""
    if difference is None:
        return ""
    if prepared.paired:
        method = f"paired t on logs, {difference.n} pairs"
    else:
        method = f"Welch on logs, {len(prepared.a.runs)} and {len(prepared.b.runs)} runs"
    return f"{method}, Holm over {comparisons} comparisons" if comparisons > 1 else method


def _reason(found: Comparison, difference: Difference | None, problem: str) -> str:
    """The result in one or two sentences."""
    ratio = found.ratio
    if ratio is None or difference is None:
        return f"{found.b} cannot be compared with {found.a} in {found.unit}: {problem or 'there is no interval'}."
    if found.relation is Relation.SAME:
        return (
            f"{found.b} and {found.a} have the same {found.unit}, to within {found.margin_pct:g} %: "
            f"{_signed(ratio.mean)} ({_interval(found, ratio)}; {found.method})."
        )
    p = "" if found.chance is None else ", p < 0.0001" if found.chance < 0.0001 else f", p = {found.chance:.2g}"
    shown = f"{_interval(found, ratio)}; {found.method}{p}"
    if found.relation is Relation.AMBIGUOUS:
        return _ambiguous(found, ratio, difference, shown)
    margin = 1 + found.margin_pct / 100
    near = ratio.low is not None and ratio.high is not None and ratio.low <= margin and ratio.high >= 1 / margin
    may_not = f" It may still be within the margin of {found.margin_pct:g} %." if near else ""
    worse_loss = found.relation is Relation.FASTER and found.loss and found.loss.verdict is LossVerdict.WORSE
    loss = f" Not a speed-up: the loss is worse ({found.loss.reason})." if worse_loss and found.loss else ""
    return f"{found.b} has {_change(found, ratio.mean)} than {found.a} ({shown}).{may_not}{loss}"


def _ambiguous(found: Comparison, ratio: Estimate, difference: Difference, shown: str) -> str:
    if contains_one(ratio) is False:
        return (
            f"{found.b} has {_change(found, ratio.mean)} than {found.a}, within the margin of {found.margin_pct:g} %, but the interval "
            f"reaches beyond it ({shown}). Add repeats, or set another --margin."
        )
    same = f"{found.b} is indistinguishable from {found.a} in {found.unit}: {_signed(ratio.mean)} ({shown})."
    return f"{same} {_more_repeats(found, difference)}"


def _more_repeats(found: Comparison, difference: Difference) -> str:
    """How many repeats would show the larger of the margin and the observed difference: less than the margin does not matter."""
    wanted = max(abs(difference.mean), math.log1p(found.margin_pct / 100))
    needed = repeats_needed(difference, wanted, found.confidence)
    size = f"{math.expm1(wanted) * 100:.2g} %"
    if needed is None:
        return f"More than {MAX_REPEATS:,} repeats each would be needed to show {size}: make the runs longer or steadier."
    # These runs may have fallen short only by chance, which happens one time in five.
    needed = max(needed, difference.n + 1)
    return f"About {needed:,} repeats each would show {size} four times in five."


def _change(found: Comparison, ratio: float) -> str:
    """`3.1 % more samples/s`, `a 3.1 % lower p90/p50`."""
    size = _per_cent(abs(ratio - 1) * 100)
    if found.metric == "wall_p90_over_p50":
        return f"a {size} {'higher' if ratio > 1 else 'lower'} {found.unit}"
    return f"{size} {'more' if ratio > 1 else 'fewer'} {found.unit}"


def _interval(found: Comparison, ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return "no interval"
    if ratio.high > WIDEST_INTERVAL * ratio.low:
        return f"{found.confidence * 100:.4g} % interval wider than a factor of {WIDEST_INTERVAL}: too few runs to tell"
    return f"{found.confidence * 100:.4g} % interval {_signed(ratio.low)} to {_signed(ratio.high)}"


def _signed(ratio: float) -> str:
    """`+3.1 %` for a ratio of 1.031."""
    pct = (ratio - 1) * 100
    return f"{'+' if pct >= 0 else '−'}{_per_cent(abs(pct))}"


def _per_cent(pct: float) -> str:
    return f"{pct:,.0f} %" if pct >= 100 else f"{pct:.1f} %" if pct >= 1 else f"{pct:.2f} %"


@dataclass(frozen=True, kw_only=True)
class _PresetScore:
    """A group's score by one of stage 1's rules."""

    name: str
    mean: float
    stdev: float | None
    text: str


def _preset_winner_text(preset: str, a: ComparedGroup, b: ComparedGroup, metric: Figure) -> str:
    """The rule's figures and its winner; empty without a rule.

    last50        mean and standard deviation over the last 50 counted steps of each run, the higher rate wins
    highest_mean  the higher mean over the runs wins, and of two equal ones the lower variance
    """
    if not preset:
        return ""
    scores = [_last_steps_score(group) if preset == LAST50 else _mean_score(group, metric) for group in (a, b)]
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return f"By the rule {preset} there is no winner: not every run has {'its last 50 steps' if preset == LAST50 else metric.name}."
    higher = metric.higher_is_better or preset == LAST50
    return f"By the rule {preset}: {known[0].text}; {known[1].text}; {_preset_winner(known[0], known[1], higher)}."


def _last_steps_score(group: ComparedGroup) -> _PresetScore | None:
    """The last steps of all runs as if they were one list."""
    last = [run.last_steps for run in group.runs if run.last_steps is not None]
    if not last or len(last) < len(group.runs):
        return None
    n = sum(one.n for one in last)
    mean_ms = sum(one.n * one.mean_ms for one in last) / n
    squares = sum(one.n * (one.stdev_ms**2 + (one.mean_ms - mean_ms) ** 2) for one in last)
    stdev_ms = math.sqrt(squares / n)
    per_s = statistics.fmean(one.per_s for one in last)
    steps = " and ".join(sorted({str(one.n) for one in last}))
    rows = f"last {steps} steps of {count(len(last), 'run')}"
    text = f"{group.name} {mean_ms:.4g} ms a step, stdev {stdev_ms:.3g} ms, {per_s:.4g} per second ({rows})"
    return _PresetScore(name=group.name, mean=per_s, stdev=stdev_ms / mean_ms * per_s if mean_ms else None, text=text)


def _mean_score(group: ComparedGroup, metric: Figure) -> _PresetScore | None:
    values = [run.figures[metric.name] for run in group.runs if metric.name in run.figures]
    if not values or len(values) < len(group.runs):
        return None
    stdev = statistics.stdev(values) if len(values) > 1 else None
    spread = "" if stdev is None else f"stdev {stdev:.3g}, "
    mean = statistics.fmean(values)
    text = f"{group.name} mean {mean:.5g} {metric.unit} ({spread}{count(len(values), 'run')})"
    return _PresetScore(name=group.name, mean=mean, stdev=stdev, text=text)


def _preset_winner(a: _PresetScore, b: _PresetScore, higher_is_better: bool) -> str:
    if f"{a.mean:.{TIE_DIGITS}g}" != f"{b.mean:.{TIE_DIGITS}g}":
        best = max(a, b, key=lambda one: one.mean if higher_is_better else -one.mean)
        return f"{best.name} wins by its mean"
    if a.stdev is None or b.stdev is None or a.stdev == b.stdev:
        return "neither wins"
    return f"the means tie and {min(a, b, key=lambda one: one.stdev or 0.0).name} wins by the lower variance"
