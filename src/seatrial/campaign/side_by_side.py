"""Two campaigns in one page: `report OUT --compare OUT2`.

In: the results of OUT, which have been written, and the folder of OUT2. Out: OUT/compare_NAME.html, and what `seatrial compare OUT OUT2`
says of the two. OUT2 is read and measured again, and nothing is written into it. What may not be compared is said, in the page too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.campaign.grouped import plans_of
from seatrial.campaign.in_the_way import folder_moved_aside
from seatrial.campaign.original import campaign_of
from seatrial.campaign.results import gather_results
from seatrial.campaign.run_side import run_side
from seatrial.campaign.side_words import asked_pairs
from seatrial.errors import SeatrialError, UsageError
from seatrial.paths import CampaignPaths, OriginalPaths
from seatrial.records.results import CampaignResults
from seatrial.report.html.compare_page import Compared, page_name, write_compare_page
from seatrial.report.html.live_data import page_data_of
from seatrial.report.html.page_data import read_page_data
from seatrial.report.run_diff import RunDiff, diff_runs
from seatrial.shell import quote

# What a refusal of unlike machines advises: an option of the other verb.
ACROSS = "with --across"


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """What came of it."""

    page: Path
    compared: Compared
    moved: str = ""
    """What stood where the page is now, and where that went."""


def check_other(out: Path, other: Path) -> None:
    """An error where there is no campaign to compare with, or it is OUT itself: before anything is made."""
    paths = CampaignPaths(campaign_of(other))
    plans_of(paths)
    if paths.folder.resolve() in (out.resolve(), OriginalPaths(out).translated.resolve()):
        raise UsageError(f"--compare {other}: that is {out} itself; name the folder of another campaign, or leave --compare out")


def write_side_by_side(out: Path, results: CampaignResults, other: Path) -> SideBySide:
    """Compare, and write the page beside the reports of OUT."""
    paths = CampaignPaths(Path(results.output))
    others = gather_results(CampaignPaths(campaign_of(other)), charts=True)
    compared = _compared(out, results, other, others)
    page = paths.folder / page_name(out, other)
    moved = folder_moved_aside(page)
    write_compare_page(
        page,
        a=read_page_data(paths),
        b=page_data_of(others),
        names=(str(out), str(other)),
        compared=compared,
        diff=_difference(results, others),
    )
    return SideBySide(page=page, compared=compared, moved=moved.text if moved else "")


def _compared(out: Path, results: CampaignResults, other: Path, others: CampaignResults) -> Compared:
    """As `seatrial compare OUT OUT2` would; what it refuses is a sentence here."""
    from seatrial.analyse.compare import compare_pairs

    known = {out: replace(results, output=str(out)), other: replace(others, output=str(other))}
    try:
        meant = asked_pairs([str(out), str(other)], known=known)
        found = compare_pairs(meant.pairs, family=meant.family)
    except SeatrialError as error:
        verb = quote(["seatrial", "compare", str(out), str(other), "--across"])
        return Compared(refused=str(error).replace(ACROSS, f"by `{verb}`"))
    return Compared(comparisons=found, note=meant.note)


def _difference(results: CampaignResults, others: CampaignResults) -> RunDiff | None:
    """Between a run of the best group here and one of the same group there, or of the best there; None where a side has no run."""
    best = _best_group(results)
    folders = [_run_folder(results, best), _run_folder(others, best) or _run_folder(others, _best_group(others))]
    if None in folders:
        return None
    before, after = (run_side(folder) for folder in folders if folder)
    return diff_runs(before, after)


def _best_group(results: CampaignResults) -> str:
    """The winner, else the first that has runs that count."""
    return results.ranking.winner or next((group.group for group in results.groups if group.runs), "")


def _run_folder(results: CampaignResults, group: str) -> Path | None:
    """Of the first run that counts."""
    counted = next((one.counted for one in results.groups if one.group == group and one.counted), ())
    return Path(results.output) / min(counted) if counted else None
