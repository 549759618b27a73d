"""Where a run's start-up goes. In: CampaignResults. Out: for summary.md heading and table, group by part, in seconds; for a terminal the
same values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from seatrial.records.events import STARTUP_PARTS
from seatrial.records.results import CampaignResults
from seatrial.report.charted import MadeOf
from seatrial.report.digest import groups_in_order, runs_by_group
from seatrial.report.markdown import bounded_table
from seatrial.report.numbers import NONE

NOTHING = "Not told apart: it takes a workload with the probe, which says when its process began and what it did before the first step."
EXPLAINED = (
    "Seconds, mean over the runs that count, each of the rank whose first step ended last. Launch is the time until its process began, "
    "import from there until its probe began; other is what no name was given to."
)


def startups(results: CampaignResults) -> list[MadeOf]:
    """Of every group that has a counted run with its start-up told apart; best group first."""
    by_group = runs_by_group(results)
    found = []
    for group in groups_in_order(results):
        told = [run.measure.startup for run in by_group.get(group.group_key, []) if run.measure and run.measure.startup]
        if told:
            # Each part over the runs that tell of it: one that a run does not name is not known of it.
            parts = {part: fmean(one[part] for one in told if part in one) for part in STARTUP_PARTS if any(part in one for one in told)}
            in_all = fmean(sum(one.values()) for one in told)
            found.append(MadeOf(group=group, window="start-up", parts=parts, whole=in_all, runs=len(told)))
    return found


def startup_section(results: CampaignResults) -> Iterator[str]:
    """One row a group, one column a part that any group tells of."""
    yield "## Start-up"
    found = startups(results)
    if not found:
        yield NOTHING
        return
    # What no workload of the campaign tells would be a column of dashes.
    shown = [part for part in STARTUP_PARTS if any(part in made_of.parts for made_of in found)]
    headers = ["group", *(part.replace("_", " ") for part in shown), "in all", "runs"]
    yield bounded_table(headers, [_row(made_of, shown) for made_of in found], right=range(1, len(headers)))
    yield EXPLAINED


def _row(made_of: MadeOf, shown: Sequence[str]) -> list[object]:
    parts = (f"{made_of.parts[part]:.2f}" if part in made_of.parts else NONE for part in shown)
    return [made_of.group.group, *parts, f"{made_of.whole:.2f}", made_of.runs]
