"""The section of summary.md with the smoke records. In: CampaignResults. Out: a table with a column a run; nothing where there is none."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.records.results import CampaignResults
from seatrial.report.digest.smoke import EXPLAINED, MOST_RECORDS, smoke_records
from seatrial.report.markdown.text import table
from seatrial.report.numbers import NONE


def smoke_section(results: CampaignResults) -> Iterator[str]:
    """A table with a column a run; nothing where no run has such a record."""
    records = smoke_records(results)
    if not records:
        return
    yield "## Smoke record"
    shown = records[:MOST_RECORDS]
    names = list(dict.fromkeys(name for record in shown for name in record.rows))
    yield table(["", *(record.run for record in shown)], [[name, *(record.rows.get(name, NONE) for record in shown)] for name in names])
    if len(records) > len(shown):
        yield f"{len(records) - len(shown)} more runs are left out here: `summary.json` has them."
    yield EXPLAINED
