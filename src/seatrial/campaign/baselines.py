"""What the criteria of a plan compare with, compared.

In: the criteria, and what is known of the campaign before it is judged. Out: for each group and each baseline that a criterion names, the
`Comparison` (baseline = A, group = B), or why there is none and how to get one. All groups are compared, also where only the winner is
asked for: it was found among them, and is corrected for them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seatrial.campaign.grouped import GroupedCampaign
from seatrial.campaign.sides import HISTORY, Finder, side_of
from seatrial.errors import SeatrialError, UsageError, did_you_mean
from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.comparison import Comparison, Side
from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Baseline, Criterion

Compared = dict[tuple[str, str], Comparison | str]
"""By group and `Baseline.text`."""
HOW_TO_NAME = "name `baseline: {campaign: OUT, group: GROUP}`, or `baseline: {history: NAME}` with a row that `seatrial history pin` named"


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
    names = _groups_to_judge(mine, baseline)
    try:
        a = _baseline_side(mine, baseline, folder, history)
    except SeatrialError as error:
        return {(name, baseline.text): str(error) for name in names}
    if not a.runs:
        return {(name, baseline.text): f"the baseline {baseline.text} has no run that counts" for name in names}
    return _compared(a, [side_of(mine, name) for name in names], baseline.text)


def _groups_to_judge(mine: GroupedCampaign, baseline: Baseline) -> list[str]:
    """Without a campaign of its own a baseline's group is one of these, and is not held against itself."""
    own = baseline.group if not baseline.campaign and not baseline.history else ""
    return [group.group for group in mine.groups if group.runs and group.mode != SENTINEL and group.group != own]


def _compared(a: Side, others: Sequence[Side], text: str) -> Compared:
    from seatrial.analyse.alike import refusal
    from seatrial.analyse.compare import common_metric, compare_many

    found: Compared = {}
    fit: list[Side] = []
    for side in others:
        try:
            refused = refusal(a, side)
            if not refused:
                common_metric(a, side, "throughput")
        except SeatrialError as error:
            refused = str(error)
        if refused:
            found[side.group, text] = refused
        else:
            fit.append(side)
    for side, comparison in zip(fit, compare_many(a, fit), strict=True):
        found[side.group, text] = comparison
    return found


def _baseline_side(mine: GroupedCampaign, baseline: Baseline, folder: Path, history: Path | None) -> Side:
    finder = Finder(history=history)
    if baseline.history:
        return finder.side(f"{HISTORY}{baseline.history}")
    if baseline.campaign:
        other = _folder_of(baseline.campaign, folder)
        return side_of(finder.campaign(other), baseline.group, baseline.text) if baseline.group else finder.best_of(other)
    if not any(group.group == baseline.group for group in mine.groups):
        near = did_you_mean(baseline.group, [group.group for group in mine.groups])
        raise UsageError(f"there is no group '{baseline.group}' here to compare with ({near}); or {HOW_TO_NAME}")
    return side_of(mine, baseline.group)


def _folder_of(campaign: str, folder: Path) -> Path:
    """As it stands, else beside this campaign's folder: a plan may name its neighbour."""
    named = Path(campaign).expanduser()
    if named.is_dir() or named.is_absolute():
        return named
    return folder.parent / named if (folder.parent / named).is_dir() else named
