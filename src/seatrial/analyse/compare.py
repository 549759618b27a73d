"""B held against A: faster, slower, the same, or not to be said.

In: two sides (or a baseline and several), the metric, and the margin that does not matter. Out: a `Comparison` each. What is compared, and
whether by a paired t or by Welch's on logs, is analyse.trial's to say. The interval decides: SAME where it lies wholly within the margin;
else FASTER or SLOWER where it excludes 1 and its middle lies beyond the margin; else AMBIGUOUS. A bootstrap stands beside it. Several
comparisons at once are corrected by Holm's steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from seatrial.analyse import compare_words as words
from seatrial.analyse.alike import cautions, differences
from seatrial.analyse.bootstrap import bootstrap_ratio
from seatrial.analyse.compare_presets import check_preset, ruling
from seatrial.analyse.detectable import detectable_pct
from seatrial.analyse.holm import ALPHA, holm
from seatrial.analyse.interval import chance_of, estimate, interval_of
from seatrial.analyse.rank_metric import ANY_THROUGHPUT, Metric
from seatrial.analyse.trial import Trial, make_trial
from seatrial.records.comparison import Comparison, Relation, Side
from seatrial.records.measure import Estimate

MARGIN_PCT = 1.0


def compare(
    a: Side,
    b: Side,
    *,
    metric: str = ANY_THROUGHPUT,
    margin_pct: float = MARGIN_PCT,
    preset: str = "",
    across: bool = False,
) -> Comparison:
    """B against A, alone."""
    return compare_pairs([(a, b)], metric=metric, margin_pct=margin_pct, preset=preset, across=across)[0]


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
    trials = [make_trial(a, b, metric, across=across) for a, b in pairs]
    chances = [chance_of(trial.difference) if trial.difference and not trial.problem else None for trial in trials]
    tested = max(family or 0, sum(chance is not None for chance in chances), 1)
    levels, corrected = holm(chances, tested)
    return tuple(
        _said(trial, margin_pct, preset, tested, level=level, chance=chance)
        for trial, level, chance in zip(trials, levels, corrected, strict=True)
    )


def _said(trial: Trial, margin_pct: float, preset: str, comparisons: int, *, level: int, chance: float | None) -> Comparison:
    """The comparison in words and figures. `level` divides alpha; `chance` is the corrected one."""
    a, b, metric, difference = trial.a, trial.b, trial.metric, None if trial.problem else trial.difference
    confidence = 1 - ALPHA / level
    ratio = interval_of(difference, confidence) if difference else None
    restless = words.unsteady(a, b, ratio) if ratio else ""
    if restless:
        difference, ratio = None, None
    relation = _relation(ratio, metric, margin_pct)
    ends = bootstrap_ratio(trial.logs_a, trial.logs_b, paired=trial.paired) if difference else None
    seen = words.Seen(
        a=a, b=b, metric=metric, relation=relation, ratio=ratio, difference=difference, paired=trial.paired, confidence=confidence,
        comparisons=comparisons, margin_pct=margin_pct, chance=chance, loss=trial.loss, problem=trial.problem or restless,
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
        confidence=confidence,
        bootstrap_low=ends[0] if ends else None,
        bootstrap_high=ends[1] if ends else None,
        chance=chance if difference else None,
        comparisons=comparisons,
        detectable_pct=detectable_pct(difference, confidence) if difference else None,
        margin_pct=margin_pct,
        loss=trial.loss,
        blocked=trial.blocked,
        differs=differences(a, b),
        cautions=(*cautions(a, b, metric), *_of_the_runs(trial, told=ratio is not None)),
    )


def _relation(ratio: Estimate | None, metric: Metric, margin_pct: float) -> Relation:
    """Without a ratio, which is not given where nothing may be said of the two, nothing is."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return Relation.AMBIGUOUS
    margin = 1 + margin_pct / 100
    if 1 / margin <= ratio.low and ratio.high <= margin:
        return Relation.SAME
    if ratio.low <= 1.0 <= ratio.high or 1 / margin <= ratio.mean <= margin:
        return Relation.AMBIGUOUS
    return Relation.FASTER if (ratio.mean > 1) is metric.higher_is_better else Relation.SLOWER


def _of_the_runs(trial: Trial, *, told: bool) -> Iterator[str]:
    """What weakens the comparison in how its runs were made."""
    if trial.left_out:
        yield words.left_out(trial.left_out, trial.metric)
    if told and (restless := words.restless_runs(trial.a, trial.b)):
        yield words.stands_all_the_same(restless)
    if trial.paired or trial.difference is None:
        return
    together = trial.a.campaign == trial.b.campaign
    how = "in rounds with the same repeats" if together else "side by side, in one campaign"
    yield f"The runs were not made {how}: a change of the platform in between would look like a difference."
