"""B held against A: faster, slower, the same, or not to be said.

In: two sides (or a baseline and several), the metric, and the margin that does not matter. Out: a `Comparison` each. Runs of one campaign
that were made in rounds are pairs, by repeat, and a paired t on logs is taken; all others get Welch's. Which of the two follows from how
the runs were made, never from what they show. The interval decides: SAME where it lies wholly within the margin, else FASTER or
SLOWER where it excludes 1, else AMBIGUOUS. A bootstrap stands beside it. Several comparisons at once are corrected by Holm's steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seatrial.analyse import compare_words as words
from seatrial.analyse.alike import cautions, differences, refusal
from seatrial.analyse.bootstrap import bootstrap_ratio
from seatrial.analyse.compare_presets import check_preset, ruling
from seatrial.analyse.detectable import detectable_pct
from seatrial.analyse.interval import CONFIDENCE, Difference, chance_of, estimate, interval_of, paired_difference, welch_difference
from seatrial.analyse.loss_parity import loss_parity
from seatrial.analyse.rank_metric import METRICS, THROUGHPUT, Metric
from seatrial.errors import RefusedError, UsageError, did_you_mean
from seatrial.records.comparison import Comparison, Relation, Side, SideRun
from seatrial.records.measure import Estimate

ANY_THROUGHPUT = "throughput"
MARGIN_PCT = 1.0
ALPHA = 1 - CONFIDENCE
# What single runs have: the seeds' columns are of groups, and carry no interval.
COMPARED = {name: metric for name, metric in METRICS.items() if metric.seed_column is None}


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """Two sides, what is compared of them, and how far they lie apart."""

    a: Side
    b: Side
    metric: Metric
    logs_a: list[float]
    logs_b: list[float]
    paired: bool
    difference: Difference | None

    @property
    def blocked(self) -> str:
        return words.blocked(self.a, self.b)

    @property
    def problem(self) -> str:
        """Why nothing is said whatever the figures show; empty where the interval may speak."""
        return self.blocked or words.no_interval(self.a, self.b) or words.unsteady(self.a, self.b) or words.no_noise(self.difference)


def compare(
    a: Side,
    b: Side,
    *,
    metric: str = ANY_THROUGHPUT,
    margin_pct: float = MARGIN_PCT,
    comparisons: int = 1,
    preset: str = "",
    across: bool = False,
) -> Comparison:
    """B against A; where it is one of several `comparisons`, with an interval as wide as that asks for."""
    check_preset(preset)
    return _said(_trial(a, b, metric, across), margin_pct, preset, comparisons, level=comparisons)


def compare_many(
    baseline: Side,
    others: Sequence[Side],
    *,
    metric: str = ANY_THROUGHPUT,
    margin_pct: float = MARGIN_PCT,
    preset: str = "",
    across: bool = False,
    family: int | None = None,
) -> tuple[Comparison, ...]:
    """Each of the others against the baseline, corrected for all of them together."""
    pairs = [(baseline, other) for other in others]
    return compare_pairs(pairs, metric=metric, margin_pct=margin_pct, preset=preset, across=across, family=family)


def compare_pairs(
    pairs: Sequence[tuple[Side, Side]],
    *,
    metric: str = ANY_THROUGHPUT,
    margin_pct: float = MARGIN_PCT,
    preset: str = "",
    across: bool = False,
    family: int | None = None,
) -> tuple[Comparison, ...]:
    """B against A of every pair. `family` is how many comparisons these were chosen from, where that is more: a baseline that was
    picked because it is best has been compared with everything already."""
    check_preset(preset)
    trials = [_trial(a, b, metric, across) for a, b in pairs]
    chances = [chance_of(trial.difference) if trial.difference and not trial.problem else None for trial in trials]
    tested = max(family or 0, sum(chance is not None for chance in chances), 1)
    levels, corrected = holm(chances, tested)
    return tuple(
        _said(trial, margin_pct, preset, tested, level=level, chance=chance)
        for trial, level, chance in zip(trials, levels, corrected, strict=True)
    )


def holm(chances: Sequence[float | None], family: int) -> tuple[list[int], list[float | None]]:
    """By how much alpha is divided for each, and the corrected chances. Steps down from the smallest until one is not told: from there
    on all are held against that step."""
    order = sorted((chance, at) for at, chance in enumerate(chances) if chance is not None)
    levels: list[int] = [family] * len(chances)
    corrected: list[float | None] = [None] * len(chances)
    divisor, largest, stopped = family, 0.0, False
    for step, (chance, at) in enumerate(order):
        if not stopped:
            divisor = max(family - step, 1)
            stopped = chance > ALPHA / divisor
        largest = max(largest, min(1.0, chance * max(family - step, 1)))
        levels[at], corrected[at] = divisor, largest
    return levels, corrected


def _trial(a: Side, b: Side, asked: str, across: bool) -> _Trial:
    refused = refusal(a, b, across=across)
    if refused:
        raise RefusedError(refused)
    metric = common_metric(a, b, asked)
    pairs = pairs_of(a, b)
    runs_a, runs_b = ([one for one, _ in pairs], [other for _, other in pairs]) if pairs else (list(a.runs), list(b.runs))
    logs_a, logs_b = (_logs(runs, metric) for runs in (runs_a, runs_b))
    difference = paired_difference(logs_a, logs_b) if pairs else welch_difference(logs_a, logs_b)
    return _Trial(a=a, b=b, metric=metric, logs_a=logs_a, logs_b=logs_b, paired=bool(pairs), difference=difference)


def common_metric(a: Side, b: Side, asked: str) -> Metric:
    """What both sides tell in all their runs; of throughput the first of samples/s, tokens/s, steps/s and the length of the run."""
    if asked != ANY_THROUGHPUT and asked not in COMPARED:
        raise UsageError(f"metric '{asked}' is no figure to compare by; {did_you_mean(asked, [ANY_THROUGHPUT, *COMPARED])}")
    names = THROUGHPUT if asked == ANY_THROUGHPUT else (asked,)
    both = [name for name in names if _tells(a, name) and _tells(b, name)]
    if both:
        return METRICS[both[0]]
    told = "; ".join(f"{side.name} tells {', '.join(_told(side)) or 'none of them'}" for side in (a, b))
    raise RefusedError(
        f"{a.name} and {b.name} have no {asked} in common that every run tells: {told}. Name a --metric that both have, or run them again"
    )


def pairs_of(a: Side, b: Side) -> list[tuple[SideRun, SideRun]]:
    """The runs of both, repeat by repeat, where they were made in rounds: one campaign, the same repeats, and every round over before
    the next began. Empty where they are no pairs."""
    by_a, by_b = ({run.repeat: run for run in side.runs} for side in (a, b))
    if not a.campaign or a.campaign != b.campaign or by_a.keys() != by_b.keys() or len(by_a) < 2:
        return []
    if len(by_a) < len(a.runs) or len(by_b) < len(b.runs):
        return []
    pairs = [(by_a[repeat], by_b[repeat]) for repeat in sorted(by_a)]
    return pairs if _in_rounds(pairs) else []


def _in_rounds(pairs: Sequence[tuple[SideRun, SideRun]]) -> bool:
    """Where nobody knows when runs began, their numbers are believed."""
    starts = [(min(one.started_t, other.started_t), max(one.started_t, other.started_t)) for one, other in pairs]
    if any(first <= 0 for first, _ in starts):
        return True
    return all(last < following for (_, last), (following, _) in pairwise(starts))


def _said(trial: _Trial, margin_pct: float, preset: str, comparisons: int, *, level: int, chance: float | None = None) -> Comparison:
    """The comparison in words and figures. `level` divides alpha; `chance` is the corrected one where the caller knows it."""
    a, b, metric, difference = trial.a, trial.b, trial.metric, None if trial.problem else trial.difference
    confidence = 1 - ALPHA / level
    ratio = interval_of(difference, confidence) if difference else None
    if difference and chance is None:
        chance = min(1.0, chance_of(difference) * level)
    relation = _relation(ratio, metric, margin_pct)
    loss = loss_parity(a, b)
    ends = bootstrap_ratio(trial.logs_a, trial.logs_b, paired=trial.paired) if difference else None
    seen = words.Seen(
        a=a, b=b, metric=metric, relation=relation, ratio=ratio, difference=difference, paired=trial.paired, confidence=confidence,
        comparisons=comparisons, margin_pct=margin_pct, chance=chance, loss=loss, problem=trial.problem,
    )  # fmt: skip
    rule = ruling(preset, a, b, metric)
    return Comparison(
        a=a.name,
        b=b.name,
        metric=metric.name,
        unit=metric.unit,
        higher_is_better=metric.higher_is_better,
        relation=relation,
        reason=" ".join(filter(None, (rule, words.reason(seen)))),
        method="; ".join(filter(None, (preset and f"preset {preset}", words.method(seen)))),
        value_a=estimate([math.exp(log) for log in trial.logs_a]),
        value_b=estimate([math.exp(log) for log in trial.logs_b]),
        ratio=ratio,
        bootstrap_low=ends[0] if ends else None,
        bootstrap_high=ends[1] if ends else None,
        chance=chance if difference else None,
        comparisons=comparisons,
        detectable_pct=detectable_pct(difference, confidence) if difference else None,
        margin_pct=margin_pct,
        loss=loss,
        blocked=trial.blocked,
        differs=differences(a, b),
        cautions=(*cautions(a, b, metric), *_not_in_rounds(trial)),
    )


def _relation(ratio: Estimate | None, metric: Metric, margin_pct: float) -> Relation:
    """Without a ratio, which is not given where nothing may be said of the two, nothing is."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return Relation.AMBIGUOUS
    margin = 1 + margin_pct / 100
    if 1 / margin <= ratio.low and ratio.high <= margin:
        return Relation.SAME
    if ratio.low <= 1.0 <= ratio.high:
        return Relation.AMBIGUOUS
    return Relation.FASTER if (ratio.mean > 1) is metric.higher_is_better else Relation.SLOWER


def _not_in_rounds(trial: _Trial) -> Iterator[str]:
    if trial.paired or trial.difference is None:
        return
    together = trial.a.campaign == trial.b.campaign
    how = "in rounds with the same repeats" if together else "side by side, in one campaign"
    yield f"The runs were not made {how}: a change of the platform in between would look like a difference."


def _logs(runs: Sequence[SideRun], metric: Metric) -> list[float]:
    return [math.log(run.figures[metric.name]) for run in runs]


def _tells(side: Side, name: str) -> bool:
    """Whether every run of the side has the figure; a side without runs lacks nothing."""
    return all(_is_figure(run.figures.get(name)) for run in side.runs)


def _told(side: Side) -> list[str]:
    return [name for name in COMPARED if side.runs and _tells(side, name)]


def _is_figure(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0
