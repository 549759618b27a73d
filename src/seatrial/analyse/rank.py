"""The order of the groups, and who won.

In: group summaries and `rank_by`. Out: `Ranking`. The best is the group with the best mean on logs among those that can win: at
least one run, none failed. A group whose Welch interval against the best holds no difference is tied with it. The tie goes to the
lower p90/p50 among those whose mean lies inside the best one's own interval and close to it, and that are not told apart from a better
one: a group that only scatters, or stands beside one that does, does not win by that. A group of one run has no interval: it keeps
its place by value, and is told apart from nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from seatrial.analyse.debug_switches import switched_on
from seatrial.analyse.interval import contains_one, ratio
from seatrial.analyse.rank_cautions import ranking_cautions
from seatrial.analyse.rank_metric import Metric, choose_metric
from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.measure import Cell, Estimate, GroupSummary, RankedGroup, Ranking
from seatrial.wording import named

ITER_P50 = "tail_mean_iter_p50_ms_mean"
# A difference of more than this is not given away to the lower p90/p50, however widely the best one's own runs scatter.
CLOSE = 0.10
MOST_TIED_NAMED = 8
"""A sentence is no list: the ranking has them all."""
MOST_REFUSALS = 4
NO_INTERVAL = "no interval, so its place is not evidence"
NOT_ENDED = "no run has ended yet"


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """A group beside the best."""

    summary: GroupSummary
    value: Estimate | None
    ratio: Estimate | None = None
    apart: bool | None = None
    """Told apart from the best; None where the data cannot say."""
    inside: bool = False
    """Its mean lies inside the best one's own interval, and close to its mean."""
    refusal: str = ""

    @property
    def can_win(self) -> bool:
        return not self.refusal


def rank(groups: Sequence[GroupSummary], rank_by: str) -> Ranking:
    """The main lane's order, the order of what is off it, and the winners. A sentinel watches the platform and has no place."""
    groups = [group for group in groups if group.mode != SENTINEL]
    metric, cautions = choose_metric(groups, rank_by)
    main = [group for group in groups if group.lane]
    order = _order(main, metric)
    winner = next((place for place in order if place.can_win), None)
    return Ranking(
        metric=metric.name,
        unit=metric.unit,
        higher_is_better=metric.higher_is_better,
        groups=_ranked(order),
        off_lane=_ranked(_order([group for group in groups if not group.lane], metric)),
        winner=winner.summary.group if winner else None,
        latency_winner=_latency_winner(main),
        decided=_is_decided(order, winner),
        reason=_reason(order, winner, metric),
        cautions=(*cautions, *ranking_cautions(groups, metric)),
    )


def _order(groups: Sequence[GroupSummary], metric: Metric) -> list[_Standing]:
    """First the best and those inside its interval that the data does not tell from it, by p90/p50; the rest by value."""
    plain = any(group.runs and not group.debug for group in groups)
    standings = [_Standing(summary=group, value=metric.of(group), refusal=_refusal(group, metric, plain=plain)) for group in groups]
    able = [place for place in standings if place.can_win]
    if not able:
        return sorted(standings, key=lambda place: _by_value(place, metric))
    best = min(able, key=lambda place: _by_value(place, metric))
    standings = [_beside(place, best) for place in standings]
    tied = _may_win([place for place in standings if place.can_win and place.apart is False and place.inside], metric)
    rest = sorted((place for place in standings if place not in tied), key=lambda place: _by_value(place, metric))
    # Only groups that cannot win stand before the best.
    ahead = [place for place in rest if _by_value(place, metric) < _by_value(best, metric)]
    behind = rest[len(ahead) :]
    return [*ahead, *sorted(tied, key=lambda place: (_jitter(place.summary), _by_value(place, metric))), *behind]


def _may_win(tied: list[_Standing], metric: Metric) -> list[_Standing]:
    """Those of the tied that are not told apart from a better one: a best one that scatters must not lift a slower group over others."""
    best_first = sorted(tied, key=lambda place: _by_value(place, metric))
    return [place for at, place in enumerate(best_first) if not any(_is_apart(place, better) for better in best_first[:at])]


def _beside(place: _Standing, best: _Standing) -> _Standing:
    if place is best:
        return replace(place, apart=False, inside=True)
    if place.value is None or best.value is None:
        return place
    compared = ratio(place.value, best.value)
    within = contains_one(compared)
    low, high = best.value.low, best.value.high
    close = abs(math.log(place.value.mean / best.value.mean)) <= -math.log1p(-CLOSE)
    inside = low is not None and high is not None and low <= place.value.mean <= high and close
    return replace(place, ratio=compared, apart=None if within is None else not within, inside=inside)


def _refusal(group: GroupSummary, metric: Metric, *, plain: bool) -> str:
    """Why a group cannot win; empty when it can. `plain` where some group was measured without debug and tracing."""
    if group.failed_runs:
        return f"{group.failed_runs} of {group.runs + group.failed_runs + group.set_aside_runs} runs failed"
    if group.runs == 0:
        return "the platform failed its runs" if group.infrastructure_failures else NOT_ENDED
    if group.broken_losses:
        return f"the loss of {group.broken_losses} of {group.runs} runs is no number"
    if metric.of(group) is None:
        return f"{metric.name} is not known of all its runs"
    return f"measured with {', '.join(group.debug)} on" if group.debug and plain else ""


def _by_value(place: _Standing, metric: Metric) -> tuple[bool, float, str]:
    if place.value is None:
        return True, 0.0, place.summary.group
    return False, -place.value.mean if metric.higher_is_better else place.value.mean, place.summary.group


def _jitter(group: GroupSummary) -> float:
    figure = group.figures.get("wall_p90_over_p50")
    return figure.mean if figure else math.inf


def _ranked(order: Sequence[_Standing]) -> tuple[RankedGroup, ...]:
    best = next((place for place in order if place.can_win and place.ratio is None and place.apart is False), None)
    others_tied = any(_is_tied(place) for place in order if place is not best)
    return tuple(
        RankedGroup(
            rank=number,
            group=place.summary.group,
            value=place.value.mean if place.value else None,
            ratio=place.ratio,
            tied=_is_tied(place) and (place is not best or others_tied),
            can_win=place.can_win,
            reason=_place_reason(place, best),
        )
        for number, place in enumerate(order, start=1)
    )


def _is_tied(place: _Standing) -> bool:
    return place.can_win and not place.apart


def _place_reason(place: _Standing, best: _Standing | None) -> str:
    if place.refusal:
        return place.refusal
    if place is best or place.apart:
        return ""
    if place.apart is None:
        return NO_INTERVAL
    return f"not told apart from {best.summary.group} by the data" if best else ""


def _latency_winner(groups: Sequence[GroupSummary]) -> str | None:
    timed = [
        (value, group.group) for group in groups if group.runs and not group.failed_runs and (value := number(group.seed.get(ITER_P50)))
    ]
    return min(timed)[1] if timed else None


def _is_decided(order: Sequence[_Standing], winner: _Standing | None) -> bool:
    if winner is None or winner.summary.unsteady_runs or any(place.summary.infrastructure_failures for place in order):
        return False
    rivals = [place for place in order if place.can_win and place is not winner]
    alike = all(_conditions(place) == _conditions(winner) for place in rivals)
    return bool(rivals) and alike and all(place.apart for place in rivals)


def _conditions(place: _Standing) -> tuple[str, frozenset[tuple[str, str]]]:
    return place.summary.fingerprint, switched_on(place.summary.debug)


def _reason(order: Sequence[_Standing], winner: _Standing | None, metric: Metric) -> str:
    """One sentence on how the winner won."""
    if winner is None:
        return f"No group can win: {_refusals(order) or 'there is none'}."
    name, able = winner.summary.group, [place for place in order if place.can_win]
    if len(able) == 1:
        if len(order) > 1 and all(place.refusal == NOT_ENDED for place in order if place is not winner):
            return f"{name} is the only group of which a run has ended."
        return f"{name} is the only group that can win." if len(order) > 1 else f"{name} is the only group."
    tied = [place for place in able if place is not winner and not _is_apart(place, winner)]
    stands = f"{name} has the {'highest' if metric.higher_is_better else 'lowest'} {metric.unit}"
    if not tied and winner.summary.unsteady_runs:
        return f"{stands}, but {winner.summary.unsteady_runs} of its {winner.summary.runs} runs had no steady state; run more steps."
    if not tied:
        return f"{stands}, told apart from every other group.{_still_to_repeat(order)}"
    if any(place.apart is None for place in tied):
        remedy = "rank by a wall-clock figure" if metric.seed_column else "repeat the runs"
        return f"{stands}, but without an interval the order is not evidence; {remedy}."
    names = named([place.summary.group for place in tied], MOST_TIED_NAMED)
    jitter_decided = any(place.inside for place in tied) and math.isfinite(_jitter(winner.summary))
    by = "the tie goes to it for the lowest p90/p50" if jitter_decided else f"it stands first by its {metric.unit}"
    return f"{name} is not told apart from {names} by the data; {by}."


def _refusals(order: Sequence[_Standing]) -> str:
    """`a, b: 2 of 2 runs failed; c: not run yet`."""
    groups: dict[str, list[str]] = {}
    for place in order:
        groups.setdefault(place.refusal, []).append(place.summary.group)
    told = [f"{named(names, MOST_TIED_NAMED)}: {refusal}" for refusal, names in groups.items()]
    more = [f"and {len(told) - MOST_REFUSALS} more reasons"] if len(told) > MOST_REFUSALS else []
    return "; ".join([*told[:MOST_REFUSALS], *more])


def _still_to_repeat(order: Sequence[_Standing]) -> str:
    failed = sum(len(place.summary.infrastructure_failures) for place in order)
    if not failed:
        return ""
    runs = "run that the platform failed has" if failed == 1 else "runs that the platform failed have"
    return f" But {failed} {runs} to be made again before that may be put down to the settings."


def _is_apart(place: _Standing, other: _Standing) -> bool:
    if place.value is None or other.value is None:
        return False
    return contains_one(ratio(place.value, other.value)) is False


def with_seed_ranks(groups: Sequence[GroupSummary]) -> tuple[GroupSummary, ...]:
    """The groups with the seeds' rank columns filled: by iter p50, by stability (tie: iter), and by the sum of both (tie: iter)."""
    main = [group for group in groups if group.lane]
    off_lane = [group for group in groups if not group.lane and group.mode != SENTINEL]
    ranked = {group.group: group for lane in (main, off_lane) for group in _with_lane_ranks(lane)}
    return tuple(ranked.get(group.group, group) for group in groups)


def _with_lane_ranks(groups: Sequence[GroupSummary]) -> tuple[GroupSummary, ...]:
    by_iter = _places({group.group: (number(group.seed.get(ITER_P50)),) for group in groups})
    by_stability = _places({group.group: (number(group.seed.get("stability_score")), number(group.seed.get(ITER_P50))) for group in groups})
    sums = {name: (float(by_iter[name] + by_stability[name]), float(by_iter[name])) for name in by_iter if name in by_stability}
    balanced = _places(sums)
    return tuple(
        replace(
            group,
            seed={
                **group.seed,
                "rank_by_iter_p50": by_iter.get(group.group),
                "rank_by_stability": by_stability.get(group.group),
                "rank_balanced": balanced.get(group.group),
            },
        )
        for group in groups
    )


def _places(keys: Mapping[str, tuple[float | None, ...]]) -> dict[str, int]:
    """Place of every group whose keys are all known, lowest first."""
    known = sorted((key, name) for name, key in keys.items() if None not in key)
    return {name: place for place, (_, name) in enumerate(known, start=1)}


def number(cell: Cell) -> float | None:
    """A cell as a number, None for anything else."""
    return float(cell) if isinstance(cell, (int, float)) and not isinstance(cell, bool) else None
