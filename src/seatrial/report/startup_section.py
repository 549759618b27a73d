"""The section of summary.md on the time before the first step. In: CampaignResults. Out: heading and table, group by part, in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from seatrial.records.events import STARTUP_PARTS
from seatrial.records.results import CampaignResults
from seatrial.report.markdown import table
from seatrial.report.numbers import NONE
from seatrial.report.rows import counted_runs

NOTHING = "Not told apart: it takes a workload with the probe, which says when its process began and what it did before the first step."
EXPLAINED = (
    "Seconds, mean over the runs that count, each of the rank whose first step ended last. Launch is the time until its process began, "
    "import from there until its probe began; other is what no name was given to."
)


def startup_section(results: CampaignResults) -> Iterator[str]:
    """One row a group that has a counted run with its start-up told apart."""
    yield "## Start-up"
    splits: dict[str, list[dict[str, float]]] = {}
    for run in counted_runs(results):
        if run.measure and run.measure.startup:
            splits.setdefault(run.attempt.spec.key, []).append(run.measure.startup)
    if not splits:
        yield NOTHING
        return
    rows = [_row(group.group, splits[group.group_key]) for group in results.groups if group.group_key in splits]
    headers = ["group", *(part.replace("_", " ") for part in STARTUP_PARTS), "in all", "runs"]
    yield table(headers, rows, right=range(1, len(headers)))
    yield EXPLAINED


def _row(group: str, runs: Sequence[dict[str, float]]) -> list[object]:
    """Each part over the runs that tell of it: one that a run does not name is not known of it."""
    told = {part: [run[part] for run in runs if part in run] for part in STARTUP_PARTS}
    in_all = fmean(sum(run.values()) for run in runs)
    return [group, *(f"{fmean(values):.2f}" if values else NONE for values in told.values()), f"{in_all:.2f}", len(runs)]
