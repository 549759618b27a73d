"""Statements about groups and the campaign: who won, which groups are stable, whether the platform drifted.

In: the campaign's facts. Out: findings without a criterion.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.judge.advice import cause_advice
from seatrial.judge.facts import Facts
from seatrial.judge.over_campaign import drift_evidence
from seatrial.judge.reading import FILES, interval_text, listed, runs_text
from seatrial.records.measure import Estimate, GroupSummary, RankedGroup
from seatrial.records.stability import GroupStability, SentinelDrift, StabilityVerdict
from seatrial.records.verdict import Evidence, Finding, Verdict
from seatrial.units import format_number
from seatrial.wording import count

_VERDICTS = {
    StabilityVerdict.STABLE: Verdict.PASS,
    StabilityVerdict.UNSTABLE: Verdict.FAIL,
    StabilityVerdict.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}
# What a reason begins with, which the statement says itself.
_SAID_ALREADY = ("Stable: ", "Not stable: ", "Cannot be told: ")
# Not the verdict's own words: `stability:inconclusive` might be a group.
_IDS = {StabilityVerdict.STABLE: "stability-stable", StabilityVerdict.INCONCLUSIVE: "stability-unclear"}
# What a reason says of causes stands below it as advice.
_CAUSES_BEGIN = " Why: "


def winner_statement(facts: Facts) -> Iterator[Finding]:
    """PASS when the data tell the winner from every other group, no run is missing, and the platform failed none of them."""
    ranking = facts.ranking
    winner = facts.group(ranking.winner)
    reason = ranking.reason.rstrip(".") or ("No group could be ranked" if winner is None else "the first in order")
    if winner is None:
        yield Finding(id="winner", kind="winner", verdict=Verdict.INCONCLUSIVE, text=f"No winner. {reason}.")
        return
    rival = next((place for place in ranking.groups if place.can_win and place.group != winner.group), None)
    value = winner.figures.get(ranking.metric)
    sure = ranking.decided and not facts.spoilt_runs and not facts.pending
    told = f"{winner.group} {'wins' if sure else 'leads'}{_value_text(value, ranking.unit)}: {reason}{_rival_text(rival)}"
    yield Finding(
        id="winner",
        kind="winner",
        verdict=Verdict.PASS if sure else Verdict.INCONCLUSIVE,
        text=f"{told}{_spoilt_text(facts)}{_pending_text(facts)}.",
        evidence=tuple(_place_evidence(place, facts) for place in ranking.groups if facts.group(place.group)),
    )


def _pending_text(facts: Facts) -> str:
    return f"; {runs_text(len(facts.pending))} still to be run" if facts.pending else ""


def _spoilt_text(facts: Facts) -> str:
    """What the platform failed might have been faster."""
    runs = facts.spoilt_runs
    return (
        f"; but the platform failed {listed(runs)}: run {'it' if len(runs) == 1 else 'them'} again before one is called the fastest"
        if runs
        else ""
    )


def _value_text(value: Estimate | None, unit: str) -> str:
    return f" with {format_number(value.mean)} {unit}".rstrip() if value else ""


def _rival_text(rival: RankedGroup | None) -> str:
    if rival is None:
        return ""
    ratio = rival.ratio
    if ratio is None:
        return f"; next is {rival.group}, whose mean is the best"
    ends = (
        f", {interval_text()} {ratio.low:.4g} to {ratio.high:.4g}" if ratio.low is not None and ratio.high is not None else ", no interval"
    )
    return f"; next is {rival.group} at {ratio.mean:.4g} of the best mean{ends}"


def _place_evidence(place: RankedGroup, facts: Facts) -> Evidence:
    group = facts.group(place.group)
    return Evidence(
        subject=place.group,
        name=facts.ranking.metric,
        value=place.value,
        unit=facts.ranking.unit,
        file=FILES.ranked_groups.name,
        window=f"{count(group.window_n, 'step')} in the windows of {runs_text(group.runs)}" if group else "",
        n=group.runs if group else None,
    )


def stability_statements(facts: Facts) -> Iterator[Finding]:
    """One for each group that is unstable; those that are stable, and those of which it cannot be said, together."""
    judged = [(group, group.stability) for group in facts.groups if group.stability]
    for group, found in judged:
        if found.verdict is StabilityVerdict.UNSTABLE:
            yield Finding(
                id=f"stability:{group.group}",
                kind="stability",
                verdict=Verdict.FAIL,
                text=f"{group.group} is not stable: {_told(found)}.",
                evidence=_stability_evidence(group, found),
                advice=cause_advice(found.causes, group.group),
            )
    for verdict in (StabilityVerdict.INCONCLUSIVE, StabilityVerdict.STABLE):
        yield from _together(verdict, [(group, found) for group, found in judged if found.verdict is verdict])


def _together(verdict: StabilityVerdict, judged: list[tuple[GroupSummary, GroupStability]]) -> Iterator[Finding]:
    if not judged:
        return
    one, found = judged[0]
    several = len(judged) > 1
    subject = f"{len(judged)} groups are stable ({listed([group.group for group, _ in judged])})" if several else f"{one.group} is stable"
    said = subject if verdict is StabilityVerdict.STABLE else f"Whether {subject} cannot be told"
    # What the first says stands for all where they say the same; else it is the first's alone.
    whose = f"; of {one.group}, " if len({each.reason for _, each in judged}) > 1 else ": "
    yield Finding(
        id=_IDS[verdict] if several else f"stability:{one.group}",
        kind="stability",
        verdict=_VERDICTS[verdict],
        text=f"{said}{whose}{_told(found)}.",
        evidence=tuple(evidence for group, each in judged for evidence in _stability_evidence(group, each)),
    )


def _told(found: GroupStability) -> str:
    """Its reason within a sentence, without the causes."""
    reason = found.reason.split(_CAUSES_BEGIN)[0].rstrip(".")
    return next((reason.removeprefix(begins) for begins in _SAID_ALREADY if reason.startswith(begins)), reason)


def _stability_evidence(group: GroupSummary, found: GroupStability) -> tuple[Evidence, ...]:
    values = (
        ("median p90/p50", found.ratio_median, ""),
        ("highest p90/p50", found.ratio_max, ""),
        ("spread over repeats", found.cv_pct, "%"),
        ("share of unstable runs", found.unstable_run_ratio, ""),
    )
    return tuple(
        Evidence(
            subject=group.group,
            name=name,
            value=value,
            unit=unit,
            file=FILES.group_summary.name,
            window="the last timing window of each run" if "p90" in name or "unstable" in name else "the window of each run",
            n=found.runs,
        )
        for name, value, unit in values
        if value is not None
    )


def drift_statement(facts: Facts) -> Iterator[Finding]:
    if facts.drift is not None:
        yield _drift(facts.drift)


def _drift(drift: SentinelDrift) -> Finding:
    text = f"{drift.reason.rstrip('.')}."
    return Finding(id="drift", kind="drift", verdict=_VERDICTS[drift.verdict], text=text, evidence=drift_evidence(drift))
