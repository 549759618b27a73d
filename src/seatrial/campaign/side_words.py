"""From the words after `seatrial compare` to the pairs that are meant.

In: words, and the campaign that `--in` names. Out: `AskedPairs`: which sides are held against which, how many comparisons they were
chosen from, and how the baseline was found where nobody named it.

    OUT:a OUT:b …     each against the first, and so do groups `a b …` with --in OUT, or after the one word OUT
    OUT               every group against the plan's baseline, else against the winner
    OUT b             the plan's baseline, else the winner, and b
    OUT1 OUT2         groups of one name against each other where both have several, else winner against winner
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.campaign.grouped import Grouped
from seatrial.campaign.sides import HISTORY, Finder, groups_to_compare, side_name, side_of, split_word
from seatrial.errors import CampaignError, UsageError
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.comparison import Side

BOTH = 2
NO_BASELINE_NAMED = CampaignPlan.baseline


@dataclass(frozen=True, kw_only=True)
class AskedPairs:
    """What is to be compared."""

    pairs: tuple[tuple[Side, Side], ...]
    family: int | None = None
    """Comparisons that these were picked from, where figures were looked at to pick them: a winner is the best of many."""
    note: str = ""


def asked_pairs(
    words: Sequence[str], *, inside: Path | None = None, history: Path | None = None, known: Mapping[Path, Grouped] | None = None
) -> AskedPairs:
    """The pairs that the words mean. Campaigns that have been read already are `known` by their folders."""
    finder = Finder(inside=inside, history=history, known=known)
    folders = [_whole_campaign(word) for word in words]
    if not words and inside is not None:
        return _all_groups(finder, inside)
    if len(words) == 1 and folders[0] is not None:
        return _all_groups(finder, folders[0])
    if len(words) == BOTH and folders[0] is not None and folders[1] is not None:
        return _two_campaigns(finder, folders[0], folders[1])
    if folders and folders[0] is not None and all(_is_bare(word) for word in words[1:]):
        finder.inside = folders[0]
        return _groups_of(finder, folders[0], words[1:])
    sides = [finder.side(word) for word in words]
    if len(sides) < BOTH:
        raise UsageError("a comparison has two sides: name two of OUT:GROUP, OUT, history:NAME; or one campaign for all its groups")
    return _against_first(sides, [len(groups_to_compare(finder.campaign(folder))) if folder else 1 for folder in folders])


def scaling_sides(words: Sequence[str], *, inside: Path | None = None, history: Path | None = None) -> list[Side]:
    """Every side of `--scaling`: of one campaign alone, all its groups."""
    finder = Finder(inside=inside, history=history)
    alone = _whole_campaign(words[0]) if len(words) == 1 else None if words else inside
    if alone is not None:
        campaign = finder.campaign(alone)
        return [side_of(campaign, group) for group in groups_to_compare(campaign)]
    return [finder.side(word) for word in words]


def _whole_campaign(word: str) -> Path | None:
    folder, group = split_word(word)
    return folder if folder is not None and not group else None


def _is_bare(word: str) -> bool:
    """A group's name alone: no folder, no row of history."""
    return split_word(word)[0] is None and not word.startswith(HISTORY)


def _groups_of(finder: Finder, folder: Path, groups: Sequence[str]) -> AskedPairs:
    sides = [finder.side(group) for group in groups]
    if len(sides) > 1:
        return _against_first(sides, [1] * len(sides))
    campaign = finder.campaign(folder)
    baseline, note = _baseline_of(finder, folder)
    if _is_plans_own(campaign, baseline):
        return AskedPairs(pairs=((baseline, sides[0]),), note=note)
    family = len(groups_to_compare(campaign)) - 1
    return AskedPairs(pairs=((baseline, sides[0]),), family=family, note=f"{note}{_chosen_from(family + 1, family)}")


def _all_groups(finder: Finder, folder: Path) -> AskedPairs:
    """A winner was found by looking at all groups, so that all pairs of them have been compared already."""
    campaign = finder.campaign(folder)
    groups = groups_to_compare(campaign)
    if len(groups) < BOTH:
        raise CampaignError(
            f"{folder} has {len(groups) or 'no'} group{'s' * (not groups)} with runs that count: there is nothing to compare"
        )
    baseline, note = _baseline_of(finder, folder)
    pairs = tuple((baseline, side_of(campaign, group)) for group in groups if group != baseline.group)
    if _is_plans_own(campaign, baseline):
        return AskedPairs(pairs=pairs, note=note)
    family = len(groups) * (len(groups) - 1) // 2
    return AskedPairs(pairs=pairs, family=family, note=f"{note}{_chosen_from(len(groups), family)}")


def _baseline_of(finder: Finder, folder: Path) -> tuple[Side, str]:
    campaign = finder.campaign(folder)
    if campaign.baseline_group in groups_to_compare(campaign):
        return side_of(campaign, campaign.baseline_group), f"{campaign.baseline_group} is the plan's baseline."
    best = finder.best_of(folder)
    # The default stands there where nobody named one.
    named = campaign.baseline_group not in ("", NO_BASELINE_NAMED)
    why = f": the plan's own ('{campaign.baseline_group}') is no group here that counts" if named else ""
    return side_of(campaign, best.group), f"{best.group}, the winner, is the baseline{why}."


def _is_plans_own(campaign: Grouped, baseline: Side) -> bool:
    return baseline.group == campaign.baseline_group


def _chosen_from(groups: int, family: int) -> str:
    """Why more comparisons count than are shown; empty where no more do."""
    return f" It was chosen from {groups} groups by their figures, so {family} pairs count for the correction." if family > 1 else ""


def _two_campaigns(finder: Finder, first: Path, second: Path) -> AskedPairs:
    campaigns = [finder.campaign(folder) for folder in (first, second)]
    groups = [groups_to_compare(campaign) for campaign in campaigns]
    shared = [group for group in groups[0] if group in groups[1]]
    if min(map(len, groups)) > 1 and shared:
        names = [(side_name(first, group), side_name(second, group)) for group in shared]
        pairs = [
            (side_of(campaigns[0], group, one), side_of(campaigns[1], group, other))
            for group, (one, other) in zip(shared, names, strict=True)
        ]
        left = sorted({*groups[0], *groups[1]} - set(shared))
        note = f"Groups that only one of the two has are left out: {', '.join(left)}." if left else ""
        return AskedPairs(pairs=tuple(pairs), note=note)
    most = max(map(len, groups))
    winners = (
        f"Winner against winner, chosen from {len(groups[0])} and {len(groups[1])} groups: {most} comparisons count for the correction."
    )
    return AskedPairs(pairs=((finder.best_of(first), finder.best_of(second)),), family=most, note=winners if most > 1 else "")


def _against_first(sides: Sequence[Side], picked_from: Sequence[int]) -> AskedPairs:
    """`picked_from` is how many groups each side is the best of."""
    family = sum(max(picked_from[0], many) for many in picked_from[1:])
    picked = [f"{side.name} from {many}" for side, many in zip(sides, picked_from, strict=True) if many > 1]
    chosen = f"Winners were chosen from groups by their figures ({', '.join(picked)}): {family} comparisons count for the correction."
    return AskedPairs(pairs=tuple((sides[0], other) for other in sides[1:]), family=family, note=chosen if picked else "")
