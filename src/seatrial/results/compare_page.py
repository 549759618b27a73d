"""Two campaigns on one page (`report OUT --compare OUT2`), and two runs for `seatrial diff`.

In: the results of OUT, already written, and the folder of OUT2; or the folders of two runs. Out: OUT/compare_NAME.html, and what `seatrial
compare OUT OUT2` prints. OUT2 is read and measured again, and nothing is written into it. A refusal to compare is reported, also on the
page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.collect.attempt_files import read_environment
from seatrial.collect.attempts import read_attempt
from seatrial.collect.effective_settings import read_effective
from seatrial.core import files
from seatrial.core.errors import CampaignError, SeatrialError, UsageError
from seatrial.core.paths import AttemptPaths, CampaignPaths, OriginalPaths
from seatrial.core.shell import quote
from seatrial.records.attempt import Attempt
from seatrial.records.results import CampaignResults
from seatrial.records.stored import counting_attempt
from seatrial.report.html.compare import Compared, compare_page, page_name
from seatrial.report.html.data import page_data
from seatrial.report.run_diff import DiffedRun, RunDiff, diff_runs
from seatrial.results.compare import resolve_pairs
from seatrial.results.folders import find_attempts, find_campaign, find_run
from seatrial.results.gather import require_plans
from seatrial.results.recompute import gather_results, move_folder_aside

# Advice of a refusal because of different machines: an option of the other verb.
ACROSS = "with --across"


@dataclass(frozen=True, kw_only=True)
class ComparisonPage:
    """A page that was written."""

    page: Path
    compared: Compared
    moved: str = ""
    """What was in the way of the page, and its new place."""


def check_other_campaign(out: Path, other: Path) -> None:
    """Raise where there is no campaign to compare with, or it is OUT itself, before anything is written."""
    paths = CampaignPaths(find_campaign(other))
    require_plans(paths)
    if paths.folder.resolve() in (out.resolve(), OriginalPaths(out).translated.resolve()):
        raise UsageError(f"--compare {other}: that is {out} itself; name the folder of another campaign, or leave --compare out")


def write_comparison(out: Path, results: CampaignResults, other: Path) -> ComparisonPage:
    """Compare, and write the page beside the reports of OUT."""
    paths = CampaignPaths(Path(results.output))
    others = gather_results(CampaignPaths(find_campaign(other)), charts=True, allow_confounded=results.ranking.allow_confounded)
    compared = _compare(out, results, other, others)
    page = paths.folder / page_name(out, other)
    moved = move_folder_aside(page)
    diff = _diff_best_runs(results, others)
    text = compare_page(a=page_data(results), b=page_data(others), names=(str(out), str(other)), compared=compared, diff=diff)
    files.write_text(page, text)
    return ComparisonPage(page=page, compared=compared, moved=moved.text if moved else "")


def _compare(out: Path, results: CampaignResults, other: Path, others: CampaignResults) -> Compared:
    """Compare as `seatrial compare OUT OUT2` does; a refusal becomes a sentence."""
    from seatrial.analyse.comparison import compare_pairs

    known = {out: replace(results, output=str(out)), other: replace(others, output=str(other))}
    try:
        resolved = resolve_pairs([str(out), str(other)], known=known)
        found = compare_pairs(resolved.pairs, family=resolved.family, allow_confounded=results.ranking.allow_confounded)
    except SeatrialError as error:
        verb = quote(["seatrial", "compare", str(out), str(other), "--across"])
        return Compared(refused=str(error).replace(ACROSS, f"by `{verb}`"))
    return Compared(comparisons=found, note=resolved.note)


def _diff_best_runs(results: CampaignResults, others: CampaignResults) -> RunDiff | None:
    """Diff of a run of the best group here and one of the same group, else of the best group, there; None without counted runs."""
    best = _best_group(results)
    folders = [_run_folder(results, best), _run_folder(others, best) or _run_folder(others, _best_group(others))]
    if None in folders:
        return None
    before, after = (read_run_for_diff(folder) for folder in folders if folder)
    return diff_runs(before, after)


def _best_group(results: CampaignResults) -> str:
    """The recommended group, else the first with counted runs."""
    return results.ranking.recommended or next((group.group for group in results.groups if group.runs), "")


def _run_folder(results: CampaignResults, group: str) -> Path | None:
    """The folder of the group's first counted run."""
    counted = next((one.counted for one in results.groups if one.group == group and one.counted), ())
    return Path(results.output) / min(counted) if counted else None


def read_run_for_diff(folder: Path) -> DiffedRun:
    """Attempt, effective settings and environment of a folder of a run or an attempt; of several attempts, the newest that ended by
    itself."""
    attempt = _find_attempt(folder)
    paths = AttemptPaths(Path(attempt.folder))
    return DiffedRun(
        attempt=attempt,
        effective=read_effective(paths.all_events(), attempt),
        environment=read_environment(paths.environment) or {},
    )


def _find_attempt(folder: Path) -> Attempt:
    # `.` and `..` have no name of their own.
    one = AttemptPaths(find_run(folder if folder.name.strip(".") else folder.resolve()))
    wanted = [one] if one.number and one.folder.is_dir() else find_attempts(one.folder)
    readable = [attempt for paths in wanted if (attempt := read_attempt(paths))]
    if not readable:
        raise CampaignError(f"{folder} has no readable spec.json: it was never started, or is not a run's folder")
    return counting_attempt(readable, lambda one: one.outcome)
