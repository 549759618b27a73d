"""The comparisons that a plan's criteria request.

In: the criteria and the grouped campaign. Out: for each group and each baseline that a criterion names, the `Comparison` (baseline = A,
group = B), or why there is none and how to get one. All groups are compared, even where only the recommended one is requested: it was
chosen from them, so the correction covers them all. A group that a criterion names was chosen beforehand: where all criteria with this
baseline name a group, only those are compared. Where a baseline names a campaign and no group, each group is compared with the group of
the same name there, else with the recommended one there, which then counts as often as it had rivals.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.core.errors import CampaignError, RefusedError, SeatrialError, UsageError, did_you_mean
from seatrial.records.comparison import ComparedGroup, Comparison
from seatrial.records.figures import ANY_THROUGHPUT
from seatrial.records.plan import SENTINEL
from seatrial.records.results import GroupedCampaign
from seatrial.records.verdict import HOW_TO_NAME_A_BASELINE, Baseline, Criterion
from seatrial.results.compare import HISTORY_PREFIX, Resolver, comparable_groups, compared_group, full_name

Compared = dict[tuple[str, str], Comparison | str]
"""Keyed by group and `Baseline.text`."""


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A baseline and a group of this campaign."""

    baseline: ComparedGroup
    group: ComparedGroup
    picked_from: int
    """Number of groups that the baseline is the best of; 1 where it was named."""


def comparisons_for(criteria: Sequence[Criterion], mine: GroupedCampaign, *, folder: Path, history: Path | None = None) -> Compared:
    """Every comparison that the criteria request."""
    found: Compared = {}
    for baseline in dict.fromkeys(criterion.baseline for criterion in criteria if criterion.baseline is not None):
        named = {criterion.group for criterion in criteria if criterion.baseline == baseline}
        found |= _against(mine, baseline, set() if "" in named else named, folder, history)
    return found


def _against(mine: GroupedCampaign, baseline: Baseline, named: Collection[str], folder: Path, history: Path | None) -> Compared:
    """Every group against the baseline; with `named`, only those."""
    from seatrial.analyse.comparison import compare_pairs

    found: Compared = {}
    pairs: list[_Pair] = []
    resolver = Resolver(history=history)
    # Without a campaign the baseline's group is one of these, and is not compared with itself.
    own = baseline.group if not baseline.campaign and not baseline.history else ""
    candidates = [group.group for group in mine.groups if group.runs and group.mode != SENTINEL and group.group != own]
    for name in [name for name in candidates if not named or name in named]:
        try:
            pairs.append(_pair(resolver, mine, baseline, folder, name))
        except SeatrialError as error:
            found[name, baseline.text] = str(error)
    compared = compare_pairs(
        [(pair.baseline, pair.group) for pair in pairs],
        family=sum(pair.picked_from for pair in pairs),
        allow_confounded=mine.ranking.allow_confounded,
    )
    return found | {(pair.group.group, baseline.text): comparison for pair, comparison in zip(pairs, compared, strict=True)}


def _pair(resolver: Resolver, mine: GroupedCampaign, baseline: Baseline, folder: Path, name: str) -> _Pair:
    """A group with its baseline; a SeatrialError with the reason where the two cannot be compared."""
    from seatrial.analyse.comparison import common_metric
    from seatrial.analyse.groups import why_not_comparable

    a, picked_from = _find_baseline(resolver, mine, baseline, folder, name)
    if not a.runs:
        raise CampaignError(f"the baseline {a.name} has no counted run")
    b = compared_group(mine, name)
    refused = why_not_comparable(a, b) or _why_confounded(a, b, mine)
    if refused:
        raise RefusedError(refused)
    common_metric(a, b, ANY_THROUGHPUT)
    return _Pair(baseline=a, group=b, picked_from=picked_from)


def _why_confounded(a: ComparedGroup, b: ComparedGroup, mine: GroupedCampaign) -> str:
    """Why they cannot be compared: all else is not equal, or nothing differs; empty where they can, or where it is allowed."""
    from seatrial.analyse.confounding import confounding, refusal, without_effect

    return refusal(without_effect(a, b) or confounding(a, b), allow_confounded=mine.ranking.allow_confounded)


def _find_baseline(resolver: Resolver, mine: GroupedCampaign, baseline: Baseline, folder: Path, name: str) -> tuple[ComparedGroup, int]:
    """The baseline of the group of that name, and the number of groups it was picked from by its figures."""
    if baseline.history:
        return resolver.group(f"{HISTORY_PREFIX}{baseline.history}"), 1
    if baseline.campaign:
        return _find_in_campaign(resolver, _folder_of(baseline.campaign, folder), baseline.group, name)
    if not any(group.group == baseline.group for group in mine.groups):
        near = did_you_mean(baseline.group, [group.group for group in mine.groups])
        raise UsageError(f"there is no group '{baseline.group}' here to compare with ({near}); {HOW_TO_NAME_A_BASELINE}")
    return compared_group(mine, baseline.group), 1


def _find_in_campaign(resolver: Resolver, other: Path, group: str, name: str) -> tuple[ComparedGroup, int]:
    """The named group of another campaign, else the one with the name of the compared group, else the recommended one."""
    campaign = resolver.campaign(other)
    namesake = name if any(one.group == name and one.mode != SENTINEL for one in campaign.groups) else ""
    if group or namesake:
        return compared_group(campaign, group or namesake, full_name(other, group or namesake)), 1
    return resolver.best_of(other), max(len(comparable_groups(campaign)), 1)


def _folder_of(campaign: str, folder: Path) -> Path:
    """The folder as given; else beside this campaign's folder: a plan may name its neighbour, and two campaigns may have moved together."""
    named = Path(campaign).expanduser()
    beside = folder.parent / (named.name if named.is_absolute() else named)
    return beside if not named.is_dir() and beside.is_dir() else named
