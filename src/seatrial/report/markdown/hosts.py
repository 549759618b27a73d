"""The section of summary.md on hosts. In: CampaignResults. Out: a sentence a run and a table; nothing for a campaign on one host."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.records.results import CampaignResults
from seatrial.report.digest.hosts import COLUMNS, EXPLAINED, MOST_RUNS, RIGHT, cells, hosts_of, sentence
from seatrial.report.markdown.text import bounded_table, escape
from seatrial.wording import count


def hosts_section(results: CampaignResults) -> Iterator[str]:
    """Heading, sentences and table; nothing for a campaign on one host."""
    found = hosts_of(results)
    if not found:
        return
    yield "## Hosts"
    lines = [f"- {escape(sentence(one))}" for one in found[:MOST_RUNS]]
    more = len(found) - MOST_RUNS
    yield "\n".join([*lines, *([f"- and {count(more, 'more run')}: `summary.json` has them"] if more > 0 else [])])
    rows = [cells(row) for one in found for row in one.shown]
    if rows:
        yield bounded_table(COLUMNS, rows, right=RIGHT)
        yield EXPLAINED
