"""`report OUT --compare OUT2`: two campaigns in one page, and what `seatrial compare OUT OUT2` says of them.

In: the results of OUT, which have been written, and the folder of OUT2. Out: OUT/compare_NAME.html, the comparison as lines for people and
as plain values. OUT2 is read and measured again, and nothing is written into it. What may not be compared is said, in the page too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from seatrial.records.results import CampaignResults
    from seatrial.report.html.compare_page import Compared
    from seatrial.report.run_diff import RunDiff


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """What came of it."""

    page: Path
    compared: Compared

    def lines(self, width: int) -> list[str]:
        """For people."""
        from seatrial.report.comparison_text import comparison_lines

        if self.compared.refused:
            return [f"Not compared: {self.compared.refused}"]
        return comparison_lines(self.compared.comparisons, width, self.compared.note)

    def told(self) -> dict[str, Any]:
        """For machines."""
        from seatrial.records.codec import to_json

        if self.compared.refused:
            return {"refused": self.compared.refused}
        return {"comparisons": [to_json(one) for one in self.compared.comparisons], "note": self.compared.note}


def check_other(other: Path) -> None:
    """A CampaignError where there is no campaign to compare with: before anything is made."""
    from seatrial.campaign.grouped import plans_of
    from seatrial.campaign.original import campaign_of
    from seatrial.paths import CampaignPaths

    plans_of(CampaignPaths(campaign_of(other)))


def write_side_by_side(out: Path, results: CampaignResults, other: Path) -> SideBySide:
    """Compare, and write the page beside the reports of OUT."""
    from seatrial.campaign.original import campaign_of
    from seatrial.campaign.results import gather_results
    from seatrial.paths import CampaignPaths
    from seatrial.report.html.compare_page import page_name, write_compare_page
    from seatrial.report.html.live_data import page_data_of
    from seatrial.report.html.page_data import read_page_data

    paths = CampaignPaths(Path(results.output))
    others = gather_results(CampaignPaths(campaign_of(other)), charts=True)
    compared = _compared(out, results, other, others)
    page = paths.folder / page_name(other)
    write_compare_page(
        page,
        a=read_page_data(paths),
        b=page_data_of(others),
        names=(str(out), str(other)),
        compared=compared,
        diff=_difference(results, others),
    )
    return SideBySide(page=page, compared=compared)


def _compared(out: Path, results: CampaignResults, other: Path, others: CampaignResults) -> Compared:
    """As `seatrial compare OUT OUT2` would; what it refuses is a sentence here."""
    from seatrial.analyse.compare import compare_pairs
    from seatrial.campaign.side_words import asked_pairs
    from seatrial.report.html.compare_page import Compared

    known = {out: replace(results, output=str(out)), other: replace(others, output=str(other))}
    try:
        meant = asked_pairs([str(out), str(other)], known=known)
        found = compare_pairs(meant.pairs, family=meant.family)
    except SeatrialError as error:
        return Compared(refused=str(error))
    return Compared(comparisons=found, note=meant.note)


def _difference(results: CampaignResults, others: CampaignResults) -> RunDiff | None:
    """Between a run of the best group here and one of the same group there, or of the best there; None where a side has no run."""
    from seatrial.cli.diff import run_side
    from seatrial.report.run_diff import diff_runs

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
