"""The section of summary.md on health. In: CampaignResults. Out: heading, facts, and the harmless warnings."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.records.results import CampaignResults
from seatrial.report.digest.health import HARMLESS, NOTHING, facts, health_of
from seatrial.report.markdown.text import escape, table


def health_section(results: CampaignResults) -> Iterator[str]:
    """Heading, one line for each fact, and the harmless warnings."""
    yield "## Health"
    health = health_of(results)
    if not health.runs:
        yield NOTHING
        return
    yield "\n".join(f"- {escape(line)}" for line in facts(health))
    if health.harmless:
        yield HARMLESS
        rows = [[one.id, one.runs, one.lines, one.meaning] for one in health.harmless]
        yield table(["warning", "runs", "lines", "what it means"], rows, right=(1, 2))
