"""The sections of summary.md on what went wrong. In: CampaignResults. Out: failures with cause, action and last lines; cautions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.records.results import CampaignResults
from seatrial.report.digest.cautions import warnings
from seatrial.report.digest.failures import Failure, failures
from seatrial.report.markdown.text import code_block, escape
from seatrial.wording import named

LOG_LINES = 15
MOST_FAILURES = 10
MOST_CAUTIONS = 40


def failures_section(results: CampaignResults) -> Iterator[str]:
    """Runs that ended the same way for the same reason together."""
    yield "## Failures"
    found = failures(results)
    if not found:
        yield "No current run failed."
    for failure in found[:MOST_FAILURES]:
        yield from _failure(failure)
    if len(found) > MOST_FAILURES:
        yield f"{len(found) - MOST_FAILURES} more causes are left out here: `skipped_runs.tsv` has the runs."


def cautions_section(results: CampaignResults) -> Iterator[str]:
    """What is said of many runs is said once."""
    yield "## Cautions"
    found = warnings(results)
    if not found:
        yield "None."
        return
    lines = [f"- {escape(caution.kind)}: {escape(caution.text)}{_subjects(caution.subjects)}" for caution in found[:MOST_CAUTIONS]]
    if len(found) > MOST_CAUTIONS:
        lines.append(f"- and {len(found) - MOST_CAUTIONS} more: `summary.json` has them")
    yield "\n".join(lines)


def _subjects(subjects: Sequence[str]) -> str:
    return f" ({escape(named(subjects))})" if subjects else ""


def _failure(failure: Failure) -> Iterator[str]:
    yield f"### {escape(failure.cause)}: {escape(named(failure.runs))}"
    told = f"Ended {failure.outcome} after {failure.after}. {escape(failure.detail)}".rstrip()
    yield f"{told}\n\nWhat to do: {escape(failure.action)}" if failure.action else told
    yield from map(escape, failure.remarks)
    if failure.telling:
        yield "The most telling lines:"
        yield code_block(failure.telling)
    elif failure.log_tail:
        yield f"Last lines of {escape(failure.runs[0])}:"
        yield code_block(failure.log_tail[-LOG_LINES:])
