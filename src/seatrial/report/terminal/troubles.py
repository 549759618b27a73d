"""What went wrong, on a terminal: failed runs with cause and action, and what to be wary of."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from seatrial.records.results import CampaignResults
from seatrial.report.digest.cautions import warnings
from seatrial.report.digest.failures import Failure, failures
from seatrial.report.one_line import one_line
from seatrial.report.terminal.text import hanging, heading, indented, more, text
from seatrial.wording import named

LOG_LINES = 3
MOST_FAILURES = 5
MOST_CAUTIONS = 8


def causes(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Failed runs, those of one cause together."""
    found = failures(results)
    if found:
        yield heading("Failures")
    for failure in found[:MOST_FAILURES]:
        yield from _failure(failure)
    if len(found) > MOST_FAILURES:
        yield more(len(found) - MOST_FAILURES, "causes")


def warned(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Cautions, each with the runs or groups it speaks of."""
    found = warnings(results)
    if found:
        yield heading("Cautions")
    for caution in found[:MOST_CAUTIONS]:
        subjects = f" ({named(caution.subjects)})" if caution.subjects else ""
        yield hanging("! ", f"{caution.text}{subjects}", "yellow")
    if len(found) > MOST_CAUTIONS:
        yield more(len(found) - MOST_CAUTIONS)


def _failure(failure: Failure) -> Iterator[RenderableType]:
    yield hanging("x ", f"{named(failure.runs)}: {failure.outcome} after {failure.after}, {failure.cause}", "red")
    if failure.detail:
        yield indented(text(failure.detail))
    if failure.action:
        yield indented(text(f"What to do: {failure.action}", "bold"))
    for remark in failure.remarks:
        yield indented(text(remark))
    for line in failure.telling or failure.log_tail[-LOG_LINES:]:
        yield indented(Text(f"| {one_line(line)}", style="dim", no_wrap=True, overflow="ellipsis"))
