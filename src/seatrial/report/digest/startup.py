"""Where a run's start-up goes. In: CampaignResults. Out: one `MadeOf` in seconds for each group that tells it apart, best first."""

from __future__ import annotations

from statistics import fmean

from seatrial.records.events import STARTUP_PARTS
from seatrial.records.results import CampaignResults
from seatrial.report.digest.phases import MadeOf
from seatrial.report.digest.standings import groups_in_order, runs_by_group

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
