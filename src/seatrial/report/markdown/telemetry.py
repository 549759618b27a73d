"""The section of summary.md on what the machine did. In: CampaignResults. Out: heading and table, a row a group."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.records.results import CampaignResults
from seatrial.report.digest.telemetry import EXPLAINED, NOTHING, telemetry_table
from seatrial.report.markdown.text import bounded_table


def telemetry_section(results: CampaignResults) -> Iterator[str]:
    """One row a group with a counted run that was sampled."""
    yield "## What the machine did"
    headers, rows = telemetry_table(results)
    if not rows:
        yield NOTHING
        return
    yield bounded_table(headers, rows, right=range(1, len(headers)))
    yield EXPLAINED
