"""The sentences of a comparison.

In: what was seen of two sides. Out: why nothing can be said, the method, and the one sentence that stands for the whole. Every
number in them has its interval, its method and the number of runs beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from seatrial.analyse.detectable import MOST_REPEATS, repeats_needed
from seatrial.analyse.interval import Difference
from seatrial.analyse.rank_metric import Metric
from seatrial.records.comparison import LossParity, LossVerdict, Relation, Side
from seatrial.records.measure import Estimate

MOST_NAMED = 3
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
    more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
    them = "it" if len(failed) == 1 else "them"
    return f"the platform failed {', '.join(failed[:MOST_NAMED])}{more}: run {them} again on a healthy platform first"


def no_interval(a: Side, b: Side) -> str:
    """Which side has too few runs for an interval; empty where both have two."""
    for count, says in ((0, "no run that counts"), (1, "one run only")):
        few = [side.name for side in (a, b) if len(side.runs) == count]
        if few:
            return f"{' and '.join(few)} {'has' if len(few) == 1 else 'have'} {says}: there is no interval; use repeats: 3 or more"
    return ""


def unsteady(a: Side, b: Side) -> str:
    """Runs without a steady state; empty where all have one."""
    restless = [run.run for side in (a, b) for run in side.runs if not run.steady]
    if not restless:
        return ""
    more = f" and {len(restless) - MOST_NAMED} more" if len(restless) > MOST_NAMED else ""
    return f"no steady state was found in {', '.join(restless[:MOST_NAMED])}{more}: run more steps"


def no_noise(difference: Difference | None) -> str:
    """Whether the runs agree more closely than any measurement does; empty where they scatter."""
    if difference is None or difference.spread > SMALLEST_SPREAD:
        return ""
    return "every repeat gives the same to the last digit: the figures are rounded or copies, so their noise is not known"


def method(seen: Seen) -> str:
    """`paired t on logs, 5 pairs`, with the correction where there is one."""
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
        return f"{seen.b.name} against {seen.a.name} cannot be said: {seen.problem or 'there is no interval'}."
    by = {
        Relation.FASTER: _apart,
        Relation.SLOWER: _apart,
        Relation.SAME: _same,
        Relation.AMBIGUOUS: _ambiguous,
    }[seen.relation]
    return by(seen, seen.ratio) + _loss_clause(seen)


def _apart(seen: Seen, ratio: Estimate) -> str:
    return f"{seen.b.name} has {_change(seen, ratio.mean)} than {seen.a.name} ({_interval(seen, ratio)}; {method(seen)}{_chance(seen)})."


def _same(seen: Seen, ratio: Estimate) -> str:
    return (
        f"{seen.b.name} and {seen.a.name} have the same {seen.metric.unit}, to within {seen.margin_pct:g} %: "
        f"{_signed(ratio.mean)} ({_interval(seen, ratio)}; {method(seen)})."
    )


def _ambiguous(seen: Seen, ratio: Estimate) -> str:
    return (
        f"{seen.b.name} is not told apart from {seen.a.name} in {seen.metric.unit}: {_signed(ratio.mean)} "
        f"({_interval(seen, ratio)}; {method(seen)}{_chance(seen)}). {_more_repeats(seen)}"
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
    """`3.1 % more samples/s`."""
    return f"{_per_cent(abs(ratio - 1) * 100)} {'more' if ratio > 1 else 'less'} {seen.metric.unit}"


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
