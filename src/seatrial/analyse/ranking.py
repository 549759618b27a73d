"""The order of the groups, whether one wins, and which one is recommended.

In: group summaries and `rank_by`. Out: `Ranking`. The order is that of the metric. A group can win that has a run and no failed one; none
can where the metric measures different work in some of them (analyse.comparable). The best is the one with the best mean on logs of these.
A group whose Welch interval against the best includes 1 is tied with it. The best wins only where no group is tied with it. Otherwise one
of those at the top is recommended: the lowest p90/p50, then the simpler setting, among those whose mean lies inside the best one's interval
and within 10 % of it, and that are not significantly worse than a better one, so that scatter does not decide. A group of one run has no
interval: it is ranked by value.

Groups that ran the same in effect are not compared with each other: one of them stands for all. A group that is confounded with the best
(analyse.confounding) is not compared with it, and no winner is proven, unless that is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

from seatrial.analyse.comparable import A_STEP, RATE_OF, STEP_TIMES, UNLIKE_SAMPLES, all_comparable
from seatrial.analyse.confounding import (
    NO_EFFECT,
    confounded_sentence,
    confounding,
    equivalent_groups,
    reported_by_one,
)
from seatrial.analyse.groups import cell_number, debug_levels
from seatrial.analyse.statistics import contains_one, ratio_of
from seatrial.analyse.work_settings import SAMPLES, work_unit
from seatrial.core.errors import UsageError, did_you_mean
from seatrial.core.text import count, join_names
from seatrial.records.caution import Caution, Scalar
from seatrial.records.comparison import Assumed, Comparability, Mismatch
from seatrial.records.figures import ANY_THROUGHPUT, FIGURES, ITER_P50, THROUGHPUT, Figure
from seatrial.records.measure import Estimate, GroupSummary
from seatrial.records.plan import NODE_AXIS, SENTINEL
from seatrial.records.ranking import CONFOUNDED, RankedGroup, Ranking

# A lower p90/p50 never outweighs a larger difference than this, even where the best one's own runs scatter widely.
CLOSE = 0.10
# Values of p90/p50 that differ by less are equal: tables show two digits.
SAME_JITTER = 0.01
MAX_TIED_NAMED = 8
"""The ranking lists all of them."""
MAX_REFUSALS = 4
MAX_WITHOUT_EFFECT = 2
WITHOUT_INTERVAL = "no interval, so its rank is not evidence"
NOTHING_ENDED = "no run has ended yet"
# What must be equal for two groups to be compared: stage 1's columns, which every summary has.
MACHINE = ("gpu_name", "gpu_cc", "gpu_power_limit_w", "driver_version", "git_commit_short")


class _Condition(TypedDict):
    """`condition` and its remedy, as fields of Ranking."""

    condition: str
    condition_remedy: str


class _Latency(TypedDict):
    """The group with the lowest step time, as fields of Ranking."""

    latency_winner: str | None
    lowest_latency: str | None
    latency_confounded: str
    latency_unlike: str


def rank_groups(groups: Sequence[GroupSummary], rank_by: str, *, allow_confounded: bool = False) -> Ranking:
    """The main lane's order, the order of the groups off it, and the winners. A sentinel watches the platform and has no rank. Where every
    group is off the lane, as in a comparison that is reported apart from it, they are ranked among themselves."""
    groups = [group for group in groups if group.mode != SENTINEL]
    off_lane = [group for group in groups if not group.lane]
    main = [group for group in groups if group.lane]
    if not main:
        main, off_lane = off_lane, []
    metric, cautions = _choose_metric(groups, rank_by)
    order = _order(main, metric, allow_confounded=allow_confounded)
    recommended, why = _recommended(order, main, metric)
    decided = _is_decided(order, recommended, allow_confounded=allow_confounded)
    confounded = _confounded(order)
    return Ranking(
        metric=metric.name,
        unit=metric.unit,
        higher_is_better=metric.higher_is_better,
        groups=order,
        off_lane=_order(off_lane, metric, allow_confounded=allow_confounded),
        winner=recommended.group if recommended and decided else None,
        recommended=recommended.group if recommended else None,
        recommended_reason=why,
        **_latency(order, allow_confounded=allow_confounded),
        decided=decided,
        reason=_not_comparable(main, metric) or _reason(order, metric, confounded, allow_confounded=allow_confounded),
        cautions=(
            *_mismatch_cautions(order, confounded, allow_confounded=allow_confounded),
            *cautions,
            *_ranking_cautions(groups, metric),
            *_all_off_lane(groups),
        ),
        **_condition(main, metric, recommended),
        confounded=confounded_sentence(confounded) if confounded else "",
        confounded_by=confounded.names if confounded else (),
        allow_confounded=allow_confounded,
        without_effect=tuple(_without_effect(order)),
    )


def _all_off_lane(groups: Sequence[GroupSummary]) -> list[Caution]:
    if not groups or any(group.lane for group in groups):
        return []
    text = "Every group is off the plan's main lane: they are ranked among themselves. Report them apart from the mainline."
    return [Caution(kind="off_lane", text=text)]


def _order(groups: Sequence[GroupSummary], metric: Figure, *, allow_confounded: bool) -> tuple[RankedGroup, ...]:
    """The rows by value, each compared with the best of those that can win."""
    plain = any(group.runs and not group.debug for group in groups)
    rows = [_unranked(group, metric, _refusal(group, metric, plain=plain)) for group in groups]
    mismatch = _compared_work(groups).why_not(metric.name)
    if mismatch:
        refusal = f"{_figure_name(metric)} cannot be compared: {mismatch}"
        rows = [replace(row, can_win=False, reason=refusal) if row.can_win else row for row in rows]
    rows = _mark_duplicates(rows)
    rows.sort(key=lambda row: _by_value(row, metric))
    best = next((row for row in rows if row.can_win), None)
    return _numbered(_against_best(rows, best, allow_confounded=allow_confounded) if best else rows)


def _mark_duplicates(rows: Sequence[RankedGroup]) -> list[RankedGroup]:
    """The rows; of groups that ran the same in effect only one can win, the others are the same configuration ranked twice."""
    same = equivalent_groups([row.summary for row in rows if row.can_win])
    found = []
    for row in rows:
        if row.can_win and row.group in same:
            other, mismatch = same[row.group]
            reason = f"duplicate of {other}: {mismatch.text}"
            row = replace(row, can_win=False, same_as=other, no_effect=mismatch.text, reason=reason)
        found.append(row)
    return found


def _without_effect(order: Sequence[RankedGroup]) -> list[str]:
    """Distinct texts about settings that had no effect: `attn_impl had no effect: both ran sdpa (…)`."""
    return list(dict.fromkeys(row.no_effect for row in order if row.same_as))


def _confounded(order: Sequence[RankedGroup]) -> Mismatch | None:
    """Why the best cannot be compared with the first group that it is confounded with; None where there is none."""
    best = next((row for row in order if row.is_best), None)
    rivals = [row for row in order if row.confounded and row.can_win and row is not best]
    return confounding(best.summary, rivals[0].summary) if best and rivals else None


def _recommended(order: Sequence[RankedGroup], groups: Sequence[GroupSummary], metric: Figure) -> tuple[RankedGroup | None, str]:
    """The group to use as things are, and why; None where no group can win."""
    candidates = [row for row in order if row.can_win]
    best = next((row for row in candidates if row.is_best), None)
    if best is None:
        return None, ""
    top = _at_the_top([row for row in candidates if _differs(row) is False and _is_inside(row, best)])
    steady = [row for row in top if _jitter(row.summary) <= min(_jitter(each.summary) for each in top) + SAME_JITTER]
    if len(top) == 1:
        return best, f"the {_best_word(metric)} {metric.unit}" if len(candidates) > 1 else ""
    num_tied = sum(_is_tied(row) for row in candidates)
    # Others are tied with the best only because they, or it, scatter.
    tied = f"{len(top)} indistinguishable groups at the top"
    if len(top) < num_tied:
        tied = f"{len(top)} of {num_tied} tied groups closest to the best"
    chosen, simplest = _simplest(steady, groups), "the simplest setting" if _are_numeric(steady) else "the first in the plan"
    jitter = _jitter(chosen.summary)
    if len(steady) == 1:
        return chosen, f"the lowest p90/p50 ({jitter:.3g}) of the {tied}"
    if len(steady) == len(top):
        return chosen, f"{simplest} of the {tied}"
    return chosen, f"the lowest p90/p50, then {simplest}, of the {tied}"


def _are_numeric(rows: Sequence[RankedGroup]) -> bool:
    """Whether they differ only in numbers or switches: which of two names is simpler is unknown."""
    for name in rows[0].summary.axes:
        values = {row.summary.axes.get(name) for row in rows}
        if len(values) > 1 and any(not isinstance(value, bool) and cell_number(value) is None for value in values):
            return False
    return True


def _simplest(rows: Sequence[RankedGroup], groups: Sequence[GroupSummary]) -> RankedGroup:
    """The one with the smallest values, the plan's first axis first: fewer workers, a lower stage. Values that are not numbers are in the
    order of `groups`, which is the plan's."""
    values: dict[str, dict[Scalar, None]] = {}
    for group in groups:
        for name, value in group.axes.items():
            values.setdefault(name, {})[value] = None

    def sizes(row: RankedGroup) -> list[float]:
        return [_level(value, list(values[name])) for name, value in row.summary.axes.items()]

    return min(rows, key=lambda row: (sizes(row), row.rank))


def _level(value: Scalar, among: list[Scalar]) -> float:
    """The number itself, off before on; for other values their index."""
    numbers = {each: float(each) if isinstance(each, bool) else cell_number(each) for each in among}
    number = numbers[value] if None not in numbers.values() else None
    return float(among.index(value)) if number is None else number


def _figure_name(metric: Figure) -> str:
    return "the length of a run" if metric.name == "duration_s" else metric.unit


def _best_word(metric: Figure) -> str:
    return "highest" if metric.higher_is_better else "lowest"


def _figure_of(group: GroupSummary, metric: Figure) -> Estimate | None:
    """None where the group does not have it."""
    if metric.stage1_column is None:
        return group.figures.get(metric.name)
    value = cell_number(group.stage1.get(metric.stage1_column))
    return Estimate(mean=value, n=1) if value is not None and value > 0 else None


def _unranked(group: GroupSummary, metric: Figure, refusal: str) -> RankedGroup:
    """A row before it is compared with the best; `_numbered` sets its rank."""
    return RankedGroup(rank=0, summary=group, estimate=_figure_of(group, metric), can_win=not refusal, reason=refusal)


def _at_the_top(tied: Sequence[RankedGroup]) -> list[RankedGroup]:
    """The groups not significantly worse than a better one: a best group that scatters must not lift a slower one over others."""
    return [row for at, row in enumerate(tied) if not any(_is_different(row, better) for better in tied[:at])]


def _against_best(rows: Sequence[RankedGroup], best: RankedGroup, *, allow_confounded: bool) -> list[RankedGroup]:
    """The rows with their ratio to the best, where the two can be compared. The best is marked too where a rival is confounded with it."""
    compared = [row if row is best else _compared(row, best, allow_confounded=allow_confounded) for row in rows]
    text = next((row.confounded for row in compared if row.confounded and row.can_win), "")
    return [replace(row, confounded=text) if row is best else row for row in compared]


def _compared(row: RankedGroup, best: RankedGroup, *, allow_confounded: bool) -> RankedGroup:
    estimate = row.estimate
    if estimate is None or best.estimate is None or row.same_as == best.group:
        return row
    found = confounding(best.summary, row.summary)
    if found is not None:
        row = replace(row, confounded=found.text)
        if not allow_confounded:
            return replace(row, is_compared=False, reason=row.reason or f"{CONFOUNDED} with {best.group}: {found.text}")
    return replace(row, ratio=ratio_of(estimate, best.estimate))


def _differs(row: RankedGroup) -> bool | None:
    """Whether a row is significantly different from the best; None without an interval."""
    if row.is_best:
        return False
    within = contains_one(row.ratio) if row.ratio else None
    return None if within is None else not within


def _is_inside(row: RankedGroup, best: RankedGroup) -> bool:
    """Whether its mean lies inside the best one's own interval and close to its mean."""
    if row is best:
        return True
    if row.estimate is None or best.estimate is None or best.estimate.low is None or best.estimate.high is None:
        return False
    close = abs(math.log(row.estimate.mean / best.estimate.mean)) <= -math.log1p(-CLOSE)
    return best.estimate.low <= row.estimate.mean <= best.estimate.high and close


def _refusal(group: GroupSummary, metric: Figure, *, plain: bool) -> str:
    """Why a group cannot win; empty when it can. `plain`: some group was measured without debug and tracing."""
    if group.failed_runs:
        return f"{group.failed_runs} of {group.runs + group.failed_runs + group.set_aside_runs} runs failed"
    if group.runs == 0:
        return "its runs failed because of the platform" if group.infrastructure_failures else NOTHING_ENDED
    if group.may_have_failed:
        return f"{group.may_have_failed} of {group.runs} runs may have failed"
    if group.broken_losses:
        return f"the loss of {group.broken_losses} of {group.runs} runs is not finite"
    if _figure_of(group, metric) is None:
        return f"not every run has {metric.name}"
    return f"measured with {', '.join(group.debug)} on" if group.debug and plain else ""


def _by_value(row: RankedGroup, metric: Figure) -> tuple[bool, float, str]:
    if row.value is None:
        return True, 0.0, row.group
    return False, -row.value if metric.higher_is_better else row.value, row.group


def _jitter(group: GroupSummary) -> float:
    figure = group.figures.get("wall_p90_over_p50")
    return figure.mean if figure else math.inf


def _numbered(order: Sequence[RankedGroup]) -> tuple[RankedGroup, ...]:
    """The rows with their ranks, and which are tied and why."""
    best = next((row for row in order if row.is_best), None)
    others_tied = any(_is_tied(row) for row in order if row is not best)
    return tuple(
        replace(row, rank=number, tied=_is_tied(row) and (row is not best or others_tied), reason=row.reason or _tie_reason(row, best))
        for number, row in enumerate(order, start=1)
    )


def _is_tied(row: RankedGroup) -> bool:
    return row.can_win and row.is_compared and not _differs(row)


def _tie_reason(row: RankedGroup, best: RankedGroup | None) -> str:
    differs = _differs(row)
    if row is best or differs:
        return ""
    if differs is None:
        return WITHOUT_INTERVAL
    return f"indistinguishable from {best.group} at 95 %" if best else ""


def _latency(order: Sequence[RankedGroup], *, allow_confounded: bool) -> _Latency:
    """The group with the lowest step time. It wins unless it is confounded with another or the size of a sample differs; groups that ran
    the same count once."""
    summaries = [row.summary for row in order if row.summary.runs and not row.summary.failed_runs and not row.same_as]
    timed = {group.group: (value, group) for group in summaries if (value := cell_number(group.stage1.get(ITER_P50)))}
    if not timed:
        return {"latency_winner": None, "lowest_latency": None, "latency_confounded": "", "latency_unlike": ""}
    name = min(timed, key=lambda name: (timed[name][0], name))
    found = next(filter(None, (confounding(timed[name][1], group) for _, group in timed.values())), None)
    mismatch = _compared_work([group for _, group in timed.values()]).why_not("iter_p50")
    winner = name if (found is None or allow_confounded) and not mismatch else None
    return {
        "latency_winner": winner,
        "lowest_latency": name,
        "latency_confounded": found.text if found else "",
        "latency_unlike": mismatch,
    }


def _is_decided(order: Sequence[RankedGroup], winner: RankedGroup | None, *, allow_confounded: bool) -> bool:
    if winner is None or winner.summary.unsteady_runs or any(row.summary.infrastructure_failures for row in order):
        return False
    if winner.confounded and not allow_confounded:
        return False
    rivals = [row for row in order if row.can_win and row is not winner]
    same = all(_same_conditions(row.summary, winner.summary) for row in rivals)
    return bool(rivals) and same and all(_differs(row) for row in rivals)


def _same_conditions(a: GroupSummary, b: GroupSummary) -> bool:
    """Whether machine and debug settings are the same; groups of different nodes are different machines on purpose."""
    same_machine = a.fingerprint == b.fingerprint or a.axes.get(NODE_AXIS) != b.axes.get(NODE_AXIS)
    return same_machine and debug_levels(a.debug) == debug_levels(b.debug)


def _reason(order: Sequence[RankedGroup], metric: Figure, confounded: Mismatch | None, *, allow_confounded: bool) -> str:
    """How the best group compares with the others, or why none can win; before that axes without an effect and what confounds groups."""
    same = "".join(f"{text}. " for text in _without_effect(order)[:MAX_WITHOUT_EFFECT])
    if confounded is None:
        return f"{same}{_standing(order, metric)}"
    if not allow_confounded:
        return f"{same}{_upper(confounded_sentence(confounded))}."
    return f"{same}{_upper(CONFOUNDED)} by {confounded.setting}, which is allowed: {confounded.text}. {_standing(order, metric)}"


def _upper(text: str) -> str:
    """With a capital where it begins with `confounded`; names of settings keep their spelling."""
    return f"{CONFOUNDED.capitalize()}{text.removeprefix(CONFOUNDED)}" if text.startswith(CONFOUNDED) else text


def _standing(order: Sequence[RankedGroup], metric: Figure) -> str:
    """One sentence: how the best group compares with the others, or why none can win."""
    best = next((row for row in order if row.is_best), None)
    if best is None:
        return f"No group can win: {_refusals(order) or 'there are none'}."
    name, candidates = best.group, [row for row in order if row.can_win]
    if len(candidates) == 1 and any(row.same_as for row in order) and all(row is best or row.same_as for row in order):
        return f"{name} stands for all groups: nothing is compared."
    if len(candidates) == 1:
        if len(order) > 1 and all(row.reason == NOTHING_ENDED for row in order if row is not best):
            return f"{name} is the only group with a finished run."
        return f"{name} is the only group that can win." if len(order) > 1 else f"{name} is the only group."
    tied = [row for row in candidates if row is not best and _is_tied(row)]
    has = f"{name} has the {_best_word(metric)} {metric.unit}"
    if not tied and best.summary.unsteady_runs:
        return f"{has}, but {best.summary.unsteady_runs} of its {best.summary.runs} runs had no steady state: run more steps."
    if not tied:
        return f"{has}, significantly better than every other group.{_still_to_repeat(order)}"
    if any(_differs(row) is None for row in tied):
        remedy = "rank by a wall-clock figure" if metric.stage1_column else "repeat the runs"
        return f"{has}, but without an interval the order is not evidence: {remedy}."
    return f"{has}, indistinguishable from {join_names([row.group for row in tied], MAX_TIED_NAMED)} at 95 %."


def _refusals(order: Sequence[RankedGroup]) -> str:
    """`a, b: 2 of 2 runs failed; c: not run yet`."""
    groups: dict[str, list[str]] = {}
    for row in order:
        groups.setdefault(row.reason, []).append(row.group)
    reasons = [f"{join_names(names, MAX_TIED_NAMED)}: {refusal}" for refusal, names in groups.items()]
    more = [f"and {len(reasons) - MAX_REFUSALS} more reasons"] if len(reasons) > MAX_REFUSALS else []
    return "; ".join([*reasons[:MAX_REFUSALS], *more])


def _still_to_repeat(order: Sequence[RankedGroup]) -> str:
    failed = sum(len(row.summary.infrastructure_failures) for row in order)
    if not failed:
        return ""
    return f" {_failed_because_of_platform(failed)}: run the same command again before blaming the settings."


def _is_different(row: RankedGroup, other: RankedGroup) -> bool:
    assert row.estimate is not None and other.estimate is not None, "a group without the figure cannot win"
    return contains_one(ratio_of(row.estimate, other.estimate)) is False


def _choose_metric(groups: Sequence[GroupSummary], rank_by: str) -> tuple[Figure, list[Caution]]:
    """The metric, with a caution where some groups lack it or have a better one that most lack.

    `throughput` is samples/s where most groups of the main lane have it, else tokens/s, else steps/s, else the duration: one metric for
    all groups. A group that lacks it cannot win, so that one poor run does not change what all the others are ranked by.
    """
    if rank_by != ANY_THROUGHPUT:
        if rank_by not in FIGURES:
            raise UsageError(f"rank_by: '{rank_by}' is not a metric to rank by; {did_you_mean(rank_by, [ANY_THROUGHPUT, *FIGURES])}")
        return FIGURES[rank_by], []
    running = [group for group in groups if group.runs]
    deciding = [group for group in running if group.lane] or running
    name = _comparable_rate(deciding) or _usual_rate(deciding)
    better = [other for other in THROUGHPUT[: THROUGHPUT.index(name)] if any(other in group.figures for group in running)]
    lacking = [*better[:1], *([name] if any(name not in group.figures for group in running) else [])]
    lacked = [which for which in lacking if any(which not in group.figures for group in running)]
    return FIGURES[name], [_mixed(which, name, running) for which in lacked[-1:]]


def _usual_rate(deciding: Sequence[GroupSummary]) -> str:
    return next((name for name in THROUGHPUT if 2 * sum(name in group.figures for group in deciding) > len(deciding)), THROUGHPUT[-1])


def _comparable_rate(deciding: Sequence[GroupSummary]) -> str:
    """A rate that all groups have and that can be compared, where the usual one cannot; empty where there is none."""
    work = _compared_work(deciding)
    if not work.why_not(_usual_rate(deciding)):
        return ""
    names = (name for name in THROUGHPUT if not work.why_not(name))
    return next((name for name in names if all(name in group.figures for group in deciding if _counts(group))), "")


def _counts(group: GroupSummary) -> bool:
    """Whether its figures count in decisions."""
    return bool(group.runs and not group.failed_runs and not group.broken_losses)


def _compared_work(groups: Sequence[GroupSummary]) -> Comparability:
    return all_comparable([group for group in groups if _counts(group)])


def _mixed(lacked: str, used: str, running: Sequence[GroupSummary]) -> Caution:
    lacking = [group.group for group in running if lacked not in group.figures]
    effect = "they cannot win" if lacked == used else f"so all are ranked by {used}"
    return Caution(
        kind="mixed_figures",
        numbers={"groups": len(running), "lacking": len(lacking)},
        text=f"Not every run of {', '.join(lacking[:5])} has {lacked}: {effect}. Run more steps, let every script report it, or set "
        "samples_per_step or tokens_per_step in the plan.",
    )


def _ranking_cautions(groups: Sequence[GroupSummary], metric: Figure) -> Iterator[Caution]:
    """What weakens the order, most severe first."""
    running = [group for group in groups if group.runs]
    yield from _work_mismatch_caution(running, metric)
    yield from _assumed_work(running, metric)
    yield from _one_repeat(running)
    yield from _different_conditions(running)
    yield from _failed_by_platform(groups)
    yield from _mixed_debug(running)


def _mismatch_cautions(order: Sequence[RankedGroup], confounded: Mismatch | None, *, allow_confounded: bool) -> Iterator[Caution]:
    """Cautions about groups that ran the same, settings that confound, and settings that only some groups report."""
    for text in _without_effect(order):
        rows = [row for row in order if row.same_as and row.no_effect == text]
        pairs = join_names([f"{row.group} is {row.same_as} measured again" for row in rows], MAX_TIED_NAMED)
        yield Caution(kind=NO_EFFECT, numbers={"groups": len(rows)}, text=f"{text}. {pairs}: they are not compared.")
    if confounded is not None:
        allowed = f"{_upper(CONFOUNDED)}, but compared anyway: {confounded.text}. A difference may be due to {confounded.setting}."
        text = allowed if allow_confounded else f"{_upper(confounded_sentence(confounded))}."
        yield Caution(kind=CONFOUNDED, numbers={"settings": confounded.setting}, text=text)
    best = next((row for row in order if row.is_best), None)
    for row in order if best else ():
        if best and row is not best and row.can_win and (text := reported_by_one(best.summary, row.summary)):
            yield Caution(kind="unreported_settings", text=f"{text[0].upper()}{text[1:]}.")
            return


def _work_mismatch_caution(running: Sequence[GroupSummary], metric: Figure) -> Iterator[Caution]:
    """What the order means where a sample or a step is not the same work in every group."""
    work = _compared_work(running)
    if text := _not_comparable(running, metric):
        pass
    elif metric.name in STEP_TIMES and work.text:
        text = f"Groups are ranked by {metric.unit} although {work.text}: a step does not do the same work in every group."
    elif metric.name in THROUGHPUT and (mismatch := work.why_not("samples_per_s")):
        text = f"Groups are ranked by {metric.unit}, since samples/s cannot be compared between them: {mismatch}."
    else:
        return
    yield Caution(kind=work.mismatches[0].kind, numbers={"setting": work.mismatches[0].setting or None}, text=text)


def _assumed_work(running: Sequence[GroupSummary], metric: Figure) -> Iterator[Caution]:
    """A caution where it is unknown whether an axis changes the work: it is not reported, or one number was typed for all groups."""
    assumed = _assumption(running, metric)
    if assumed is None:
        return
    name, names = metric.name.replace("_per_s", "_per_step"), join_names(assumed.settings, MAX_TIED_NAMED, " or ")
    typed = next((group.typed_work[name] for group in running if name in group.typed_work), None)
    known = f"{name} is {typed:g} in every group" if typed is not None else f"The work of {assumed.what} is unknown"
    yield Caution(
        kind="constant_work" if typed is not None else "unknown_work",
        numbers={**({name: typed} if typed is not None else {}), "setting": assumed.settings[0]},
        text=f"{known}: if {names} changes it, {metric.unit} cannot be compared between these groups. Let the script report its work, or "
        f"set {_work_keys(assumed.what)} by settings.",
    )


def _assumption(running: Sequence[GroupSummary], metric: Figure) -> Assumed | None:
    return _compared_work(running).assumption(metric.name) if _step_times_differ(running) else None


def _step_times_differ(running: Sequence[GroupSummary]) -> bool:
    """Whether some group takes longer for a step than another, or that is unknown: more work would take longer."""
    known = sorted((group.figures["steps_per_s"] for group in running if "steps_per_s" in group.figures), key=lambda figure: figure.mean)
    return len(known) < 2 or contains_one(ratio_of(known[0], known[-1])) is not True


def _work_keys(what: str) -> str:
    tokens = "tokens_per_step (sweep: --tokens-per-step)"
    return f"samples_per_step (sweep: --samples-per-step) or {tokens}" if what == A_STEP else tokens


def _condition(groups: Sequence[GroupSummary], metric: Figure, chosen: RankedGroup | None) -> _Condition:
    """What must hold for the chosen group to be the best."""
    assumed = _assumption([group for group in groups if group.runs], metric) if chosen else None
    if assumed is None:
        return {"condition": "", "condition_remedy": ""}
    if metric.name == "duration_s":
        return {
            "condition": assumed.clause("in every group").replace(assumed.what, "a run"),
            "condition_remedy": "let the script print its steps",
        }
    remedy = f"pass --{'samples' if assumed.what == A_STEP and not metric.name.startswith('samples') else 'tokens'}-per-step"
    return {"condition": assumed.clause("in every group"), "condition_remedy": remedy}


def _not_comparable(groups: Sequence[GroupSummary], metric: Figure) -> str:
    """Why no group can win by this metric, and what to do; empty where one can."""
    work, running = _compared_work(groups), [group for group in groups if group.runs]
    reason, name = work.why_not(metric.name), _figure_name(metric).replace("the ", "The ", 1)
    return f"{name} cannot be compared between these groups: {reason}. {_work_remedy(running, work)}" if reason else ""


def _work_remedy(running: Sequence[GroupSummary], work: Comparability) -> str:
    """How to make them comparable. Only an axis that counts samples is proposed as their number."""
    if any(each.kind == UNLIKE_SAMPLES for each in work.mismatches):
        rates = [rate for rate in RATE_OF.values() if not work.why_not(rate) and all(rate in group.figures for group in running)]
        if rates:
            return f"Rank by {rates[0]}."
        return "Let the script report tokens, or set tokens_per_step (sweep: --tokens-per-step)."
    axes = [name for name in dict.fromkeys(name for group in running for name in group.axes) if work_unit(name) == SAMPLES]
    varying = [name for name in axes if len({group.axes.get(name) for group in running}) > 1]
    example = f', for example "{{{varying[0]}}}"' if varying else ""
    if not any("steps_per_s" in group.figures for group in running):
        return "Let the script report its steps, and how many samples one takes."
    return f"Let the script report samples, or set samples_per_step (sweep: --samples-per-step){example}."


def _one_repeat(running: Sequence[GroupSummary]) -> Iterator[Caution]:
    single = [group.group for group in running if group.runs == 1]
    if single and len(running) > 1:
        which = "Every group has" if len(single) == len(running) else f"{len(single)} of {len(running)} groups have"
        yield Caution(
            kind="one_repeat",
            numbers={"groups": len(single)},
            text=f"{which} one run only, so there is no interval and the order is not evidence: use repeats: 3 or more.",
        )


def _different_conditions(running: Sequence[GroupSummary]) -> Iterator[Caution]:
    if len({group.fingerprint for group in running}) > 1:
        differing = [name for name in MACHINE if len({group.stage1.get(name) for group in running}) > 1]
        if not differing and len({group.axes.get(NODE_AXIS) for group in running}) > 1:
            # Nodes of one kind are compared with each other.
            return
        differing = differing or ["host, Python, torch or environment"]
        yield Caution(
            kind="unlike_groups",
            text=f"The groups ran under different conditions ({', '.join(differing)}), so a difference may not be due to their settings: "
            "run them again together.",
        )


def _failed_by_platform(groups: Sequence[GroupSummary]) -> Iterator[Caution]:
    failed = [run for group in groups for run in group.infrastructure_failures]
    if failed:
        yield Caution(
            kind="failed_by_platform",
            numbers={"runs": len(failed)},
            text=f"{_failed_because_of_platform(len(failed))} ({join_names(failed)}). They do not count against a group; run the same "
            "command again.",
        )


def _failed_because_of_platform(failed: int) -> str:
    return f"{count(failed, 'run')} failed because of the platform"


def _mixed_debug(running: Sequence[GroupSummary]) -> Iterator[Caution]:
    if len({debug_levels(group.debug) for group in running}) > 1:
        having = [f"{group.group} ({', '.join(group.debug)})" for group in running if group.debug]
        yield Caution(
            kind="mixed_debug",
            numbers={"groups": len(having)},
            text=f"Only some groups were measured with debug or tracing on ({join_names(having)}), so they cannot be compared: turn it off "
            "and run them again.",
        )
