"""The section of summary.md on the start-up. In: CampaignResults. Out: heading and table, group by part, in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.records.events import STARTUP_PARTS
from seatrial.records.results import CampaignResults
from seatrial.report.digest.phases import MadeOf
from seatrial.report.digest.startup import EXPLAINED, NOTHING, startups
from seatrial.report.markdown.text import bounded_table
from seatrial.report.numbers import NONE


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
