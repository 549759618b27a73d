"""Every file of a report, from one CampaignResults: verdict.json, the tables, the winner's files, the summaries.

The summaries come last: when summary.md is there, so is what it speaks of. The page comes after them, since it is drawn from summary.json
and the tables alone.
"""

from __future__ import annotations

from seatrial.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.report.best import write_best
from seatrial.report.chart_tables import write_chart_tables
from seatrial.report.html.document import write_html
from seatrial.report.summary import write_summary
from seatrial.report.tables import write_tables
from seatrial.report.verdict_file import write_verdict


def write_report(results: CampaignResults, paths: CampaignPaths) -> None:
    """Write everything anew; what no longer holds is removed."""
    write_verdict(results, paths)
    write_tables(results, paths)
    write_best(results, paths)
    write_chart_tables(results, paths)
    write_summary(results, paths)
    write_html(paths)
