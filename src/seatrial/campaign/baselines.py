"""What the criteria of a plan compare with, compared.

In: the criteria, and what is known of the campaign before it is judged. Out: for each group and each baseline that a criterion names, the
`Comparison` (baseline = A, group = B), or why there is none and how to get one. All groups are compared, also where only the winner is
asked for: it was found among them, and is corrected for them all. Where a baseline names a campaign and no group, each group is held
against the one of its name there, else against the winner there, which then counts as often as it had rivals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.campaign.grouped import GroupedCampaign
from seatrial.campaign.sides import HISTORY, Finder, groups_to_compare, side_name, side_of
from seatrial.errors import CampaignError, RefusedError, SeatrialError, UsageError, did_you_mean
from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.comparison import Comparison, Side
from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import HOW_TO_NAME_A_BASELINE, Baseline, Criterion

Compared = dict[tuple[str, str], Comparison | str]
"""By group and `Baseline.text`."""


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A group of the campaign, B, and what it is held against, A."""

    a: Side
    b: Side
    picked_from: int
    """Groups that A is the best of; 1 where it was named."""


def comparisons_for(
    criteria: Sequence[Criterion],
    *,
    groups: tuple[GroupSummary, ...],
    runs: tuple[MeasuredRun, ...],
    ranking: Ranking,
    pending: tuple[str, ...] = (),
    folder: Path,
    history: Path | None = None,
) -> Compared:
    """Every comparison that the criteria ask for."""
    mine = GroupedCampaign(output=str(folder), baseline_group="", runs=runs, pending=pending, groups=groups, ranking=ranking)
    baselines = dict.fromkeys(criterion.baseline for criterion in criteria if criterion.baseline is not None)
    found: Compared = {}
    for baseline in baselines:
        found |= _against(mine, baseline, folder, history)
    return found


def _against(mine: GroupedCampaign, baseline: Baseline, folder: Path, history: Path | None) -> Compared:
    found: Compared = {}
    held: list[_Held] = []
    finder = Finder(history=history)
    for name in _groups_to_judge(mine, baseline):
        try:
            held.append(_held(finder, mine, baseline, folder, name))
        except SeatrialError as error:
            found[name, baseline.text] = str(error)
    return found | _compared(held, baseline.text)


def _groups_to_judge(mine: GroupedCampaign, baseline: Baseline) -> list[str]:
    """Without a campaign of its own a baseline's group is one of these, and is not held against itself."""
    own = baseline.group if not baseline.campaign and not baseline.history else ""
    return [group.group for group in mine.groups if group.runs and group.mode != SENTINEL and group.group != own]


def _held(finder: Finder, mine: GroupedCampaign, baseline: Baseline, folder: Path, name: str) -> _Held:
    """A group with what it is held against; a SeatrialError that says why where the two cannot be compared."""
    from seatrial.analyse.alike import refusal
    from seatrial.analyse.rank_metric import ANY_THROUGHPUT
    from seatrial.analyse.trial import common_metric

    a, picked_from = _baseline_side(finder, mine, baseline, folder, name)
    if not a.runs:
        raise CampaignError(f"the baseline {a.name} has no run that counts")
    b = side_of(mine, name)
    refused = refusal(a, b)
    if refused:
        raise RefusedError(refused)
    common_metric(a, b, ANY_THROUGHPUT)
    return _Held(a=a, b=b, picked_from=picked_from)


def _compared(held: Sequence[_Held], text: str) -> Compared:
    from seatrial.analyse.compare import compare_pairs

    found = compare_pairs([(one.a, one.b) for one in held], family=sum(one.picked_from for one in held))
    return {(one.b.group, text): comparison for one, comparison in zip(held, found, strict=True)}


def _baseline_side(finder: Finder, mine: GroupedCampaign, baseline: Baseline, folder: Path, name: str) -> tuple[Side, int]:
    """What the group of that name is held against, and from how many groups that was picked by its figures."""
    if baseline.history:
        return finder.side(f"{HISTORY}{baseline.history}"), 1
    if baseline.campaign:
        return _in_other(finder, _folder_of(baseline.campaign, folder), baseline.group, name)
    if not any(group.group == baseline.group for group in mine.groups):
        near = did_you_mean(baseline.group, [group.group for group in mine.groups])
        raise UsageError(f"there is no group '{baseline.group}' here to compare with ({near}); {HOW_TO_NAME_A_BASELINE}")
    return side_of(mine, baseline.group), 1


def _in_other(finder: Finder, other: Path, group: str, name: str) -> tuple[Side, int]:
    """The group of another campaign that is named; else the one that is called as the group it is held against; else the winner."""
    campaign = finder.campaign(other)
    namesake = name if any(one.group == name and one.mode != SENTINEL for one in campaign.groups) else ""
    if group or namesake:
        return side_of(campaign, group or namesake, side_name(other, group or namesake)), 1
    return finder.best_of(other), max(len(groups_to_compare(campaign)), 1)


def _folder_of(campaign: str, folder: Path) -> Path:
    """As it stands; else beside this campaign's folder, where a plan may name its neighbour, and where a pair that was moved together
    still lies."""
    named = Path(campaign).expanduser()
    beside = folder.parent / (named.name if named.is_absolute() else named)
    return beside if not named.is_dir() and beside.is_dir() else named
