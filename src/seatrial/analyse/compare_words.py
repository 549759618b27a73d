"""The sentences of a comparison.

In: what was seen of two sides. Out: why nothing can be said, the method, and the one sentence that stands for the whole. Every
number in them has its interval, its method and the number of runs beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.analyse.detectable import MOST_REPEATS, repeats_needed
from seatrial.analyse.interval import Difference, contains_one
from seatrial.analyse.rank_metric import Metric
from seatrial.analyse.step_work import unlike_work
from seatrial.records.comparison import LossParity, LossVerdict, Relation, Side, SideRun
from seatrial.records.measure import Estimate
from seatrial.wording import MOST_IN_PASSING, named

# Figures that mean nothing while the work of a step differs.
BY_STEP = ("steps_per_s", "duration_s")
# p90/p50 of a run that changed its pace can be small, where most of its steps were slow; this much is always reckoned with.
LEAST_RESTLESS = 1.25
# On logs. A clock of nanoseconds over a minute knows no more.
SMALLEST_SPREAD = 1e-10


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All that a sentence may speak of."""

    a: Side
    b: Side
    metric: Metric
    relation: Relation
    ratio: Estimate | None
    difference: Difference | None
    paired: bool
    confidence: float
    """Of this one interval."""
    comparisons: int
    margin_pct: float
    chance: float | None
    loss: LossParity
    problem: str
    """Why nothing is said whatever the figures show."""


def blocked(a: Side, b: Side) -> str:
    """What the platform failed and is to be run again; empty where it failed nothing."""
    failed = [*a.infrastructure_failures, *(run for run in b.infrastructure_failures if run not in a.infrastructure_failures)]
    if not failed:
        return ""
    them = "it" if len(failed) == 1 else "them"
    return f"the platform failed {named(failed, MOST_IN_PASSING)}: run {them} again on a healthy platform first"


def no_interval(a: Side, b: Side) -> str:
    """Which side has too few runs for an interval; empty where both have two."""
    for count, says in ((0, "no run that counts"), (1, "one run only")):
        few = [side.name for side in (a, b) if len(side.runs) == count]
        if few:
            return f"{' and '.join(few)} {'has' if len(few) == 1 else 'have'} {says}: there is no interval; use repeats: 3 or more"
    return ""


def unlike_steps(a: Side, b: Side, metric: Metric) -> str:
    """Why a figure by steps or by runs says nothing of these two; empty where it does, and for all other figures."""
    unlike = unlike_work(a, b) if metric.name in BY_STEP else ""
    if not unlike:
        return ""
    what = "a run" if metric.name == "duration_s" else "a step"
    return (
        f"{unlike}, so {what} does not do the same work in both: give workload.samples_per_step, or let the script tell its samples, and "
        "compare by samples_per_s"
    )


def restless_runs(a: Side, b: Side) -> list[SideRun]:
    """Runs in which no steady state was found."""
    return [run for side in (a, b) for run in side.runs if not run.steady]


def unsteady(a: Side, b: Side, ratio: Estimate) -> str:
    """Why runs without a steady state decide nothing; empty where all have one, or where the whole interval lies beyond what their steps
    vary by."""
    restless = restless_runs(a, b)
    if not restless:
        return ""
    vary, names = _vary(restless), named([run.run for run in restless], MOST_IN_PASSING)
    if vary is None or ratio.low is None or ratio.high is None:
        return f"no steady state was found in {names}: run more steps"
    if ratio.low > vary or ratio.high < 1 / vary:
        return ""
    return (
        f"no steady state was found in {names}, whose steps vary by {_vary_text(vary)}, which may be all of the difference: run more steps"
    )


def stands_all_the_same(restless: Sequence[SideRun]) -> str:
    """The caution where the difference is larger than what steps vary by."""
    vary, names = _vary(restless), named([run.run for run in restless], MOST_IN_PASSING)
    assert vary is not None, "without it nothing stands"
    return f"No steady state was found in {names}: their steps vary by {_vary_text(vary)}, which is less than the difference."


def _vary(restless: Sequence[SideRun]) -> float | None:
    """By what factor steps of these runs may lie apart; None where a run does not tell. p90/p50 is of the slower half alone, so its square
    is taken: a run that drifts has a faster half that lies as far off."""
    spreads = [run.figures.get("wall_p90_over_p50") for run in restless]
    known = [spread for spread in spreads if spread is not None and math.isfinite(spread)]
    return max(LEAST_RESTLESS, max(known) ** 2) if len(known) == len(spreads) else None


def _vary_text(vary: float) -> str:
    return f"up to {_per_cent((vary - 1) * 100)}"


def left_out(runs: Sequence[str], metric: Metric) -> str:
    """The caution where some runs do not tell what is compared."""
    are = "does not tell it and is" if len(runs) == 1 else "do not tell it and are"
    return f"{metric.unit} is compared, and {named(runs, MOST_IN_PASSING)} {are} left out."


def no_noise(difference: Difference | None) -> str:
    """Whether the runs agree more closely than any measurement does; empty where they scatter."""
    if difference is None or difference.spread > SMALLEST_SPREAD:
        return ""
    return "every repeat gives the same to the last digit: the figures are rounded or copies, so their noise is not known"


def method(seen: Seen) -> str:
    """`paired t on logs, 5 pairs`, with the correction where there is one; empty without an interval."""
    if seen.difference is None:
        return ""
    if seen.paired:
        taken = f"paired t on logs, {seen.difference.n} pairs"
    else:
        taken = f"Welch on logs, {len(seen.a.runs)} and {len(seen.b.runs)} runs"
    return f"{taken}, Holm over {seen.comparisons} comparisons" if seen.comparisons > 1 else taken


def reason(seen: Seen) -> str:
    """The whole in one sentence, or two."""
    if seen.problem or seen.ratio is None:
        return f"{seen.b.name} against {seen.a.name} cannot be said in {seen.metric.unit}: {seen.problem or 'there is no interval'}."
    by = {
        Relation.FASTER: _apart,
        Relation.SLOWER: _apart,
        Relation.SAME: _same,
        Relation.AMBIGUOUS: _ambiguous,
    }[seen.relation]
    return by(seen, seen.ratio) + _loss_clause(seen)


def _apart(seen: Seen, ratio: Estimate) -> str:
    margin = 1 + seen.margin_pct / 100
    near = ratio.low is not None and ratio.high is not None and ratio.low <= margin and ratio.high >= 1 / margin
    may_not = f" It may still be within the {seen.margin_pct:g} % that does not matter." if near else ""
    return f"{seen.b.name} has {_change(seen, ratio.mean)} than {seen.a.name} ({_shown(seen, ratio)}).{may_not}"


def _same(seen: Seen, ratio: Estimate) -> str:
    return (
        f"{seen.b.name} and {seen.a.name} have the same {seen.metric.unit}, to within {seen.margin_pct:g} %: "
        f"{_signed(ratio.mean)} ({_interval(seen, ratio)}; {method(seen)})."
    )


def _ambiguous(seen: Seen, ratio: Estimate) -> str:
    if contains_one(ratio) is False:
        return (
            f"{seen.b.name} has {_change(seen, ratio.mean)} than {seen.a.name}, which may not matter: it is within the margin of "
            f"{seen.margin_pct:g} %, and its interval reaches beyond ({_shown(seen, ratio)}). Repeat more often, or take another --margin."
        )
    return (
        f"{seen.b.name} is not told apart from {seen.a.name} in {seen.metric.unit}: {_signed(ratio.mean)} ({_shown(seen, ratio)}). "
        f"{_more_repeats(seen)}"
    )


def _more_repeats(seen: Seen) -> str:
    """What the larger of the margin and the observed difference would need: less than the margin does not matter."""
    assert seen.difference is not None
    margin_log = math.log1p(seen.margin_pct / 100)
    wanted = max(abs(seen.difference.mean), margin_log)
    needed = repeats_needed(seen.difference, wanted, seen.confidence)
    size = f"{math.expm1(wanted) * 100:.2g} %"
    if needed is None:
        return (
            f"More than {MOST_REPEATS:,} repeats a side would be needed to show a difference of {size}; make the runs longer or steadier."
        )
    # By luck these runs may have had enough, four times in five.
    needed = max(needed, seen.difference.n + 1)
    return f"About {needed:,} repeats a side would show a difference of {size} four times in five."


def _loss_clause(seen: Seen) -> str:
    if seen.relation is Relation.FASTER and seen.loss.verdict is LossVerdict.WORSE:
        return f" It does not count as a speed-up, since its training is worse: {seen.loss.reason}."
    return ""


def _change(seen: Seen, ratio: float) -> str:
    """`3.1 % more samples/s`, `a 3.1 % lower p90/p50`."""
    size, unit = _per_cent(abs(ratio - 1) * 100), seen.metric.unit
    if seen.metric.name == "wall_p90_over_p50":
        return f"a {size} {'higher' if ratio > 1 else 'lower'} {unit}"
    return f"{size} {'more' if ratio > 1 else 'fewer'} {unit}"


def _shown(seen: Seen, ratio: Estimate) -> str:
    return f"{_interval(seen, ratio)}; {method(seen)}{_chance(seen)}"


def _interval(seen: Seen, ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return "no interval"
    return f"{seen.confidence * 100:.4g} % interval {_signed(ratio.low)} to {_signed(ratio.high)}"


def _signed(ratio: float) -> str:
    """`+3.1 %` of a ratio of 1.031."""
    pct = (ratio - 1) * 100
    return f"{'+' if pct >= 0 else '−'}{_per_cent(abs(pct))}"


def _per_cent(pct: float) -> str:
    return f"{pct:,.0f} %" if pct >= 100 else f"{pct:.1f} %" if pct >= 1 else f"{pct:.2f} %"


def _chance(seen: Seen) -> str:
    if seen.chance is None:
        return ""
    return ", p < 0.0001" if seen.chance < 0.0001 else f", p = {seen.chance:.2g}"
