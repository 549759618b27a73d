"""Every file of a report, from one CampaignResults: verdict.json, the tables, the winner's files, the summaries, the page.

The summaries come last: when summary.md is there, so is what it speaks of. The page comes after them, since it is drawn from summary.json
and the tables alone. A page that cannot be drawn costs nothing but itself: the old one goes, a caution says so, and the verdict stands.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

from seatrial.disk.append import TROUBLE
from seatrial.paths import CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.results import CampaignResults
from seatrial.report.best import write_best
from seatrial.report.chart_tables import write_chart_tables
from seatrial.report.digest.cautions import PAGE_NOT_DRAWN
from seatrial.report.html.document import write_html
from seatrial.report.one_line import one_line
from seatrial.report.summary import write_summary
from seatrial.report.tables import write_tables
from seatrial.report.verdict_file import write_verdict

log = logging.getLogger(__name__)

LONGEST_CAUSE = 200


def write_report(results: CampaignResults, paths: CampaignPaths) -> CampaignResults:
    """Write everything anew; what no longer holds is removed. The results come back, with a caution more where the page is not there."""
    write_verdict(results, paths)
    write_tables(results, paths)
    write_best(results, paths)
    write_chart_tables(results, paths)
    write_summary(results, paths)
    missing = _write_page(paths)
    if missing is None:
        return results
    told = replace(results, cautions=(*results.cautions, missing))
    write_summary(told, paths)
    return told


def _write_page(paths: CampaignPaths) -> Caution | None:
    """The page, or why there is none."""
    from polars.exceptions import PanicException

    try:
        write_html(paths)
    # A panic of polars is no Exception, and no reason to lose a verdict either.
    except (Exception, PanicException) as error:
        if isinstance(error, OSError) and error.errno in TROUBLE:
            raise
        # It would show what no longer holds.
        with contextlib.suppress(OSError):
            paths.summary_html.unlink(missing_ok=True)
        log.debug("%s could not be drawn", paths.summary_html, exc_info=error)
        return Caution(kind=PAGE_NOT_DRAWN, text=_why(error, paths))
    return None


def _why(error: BaseException, paths: CampaignPaths) -> str:
    cause = one_line(f"{type(error).__name__}: {error}")[:LONGEST_CAUSE]
    return (
        f"{paths.summary_html.name} could not be drawn ({cause}). Verdict and figures are not touched by it: {paths.summary_md.name}, "
        f"{paths.summary_json.name} and the tables have all of it."
    )
