"""What to be wary of, from the campaign down to its current runs; what is said of many is said once.

In: CampaignResults. Out: `Warned`: a caution and all the runs or groups it speaks of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.records.caution import Caution
from seatrial.records.original_names import MADE_FROM
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults
from seatrial.report.digest.failures import WHAT_FITS

PAGE_NOT_DRAWN = "page_not_drawn"
"""The kind of caution of a report without its page."""
NOT_WRITTEN = "report_not_written"
"""The kind of caution of a report that a bad disk did not take; whoever prints the report says it in full."""
TOLD_ELSEWHERE = (MADE_FROM, WHAT_FITS, NOT_WRITTEN)
"""The origin heads a report, and what fits stands at the failures."""


@dataclass(frozen=True, kw_only=True)
class Warned:
    """One caution and all the runs or groups it speaks of."""

    kind: str
    text: str
    subjects: tuple[str, ...]


def warnings(results: CampaignResults) -> list[Warned]:
    """The cautions for a reader who has read the head and the failures."""
    return [caution for caution in cautions(results) if caution.kind not in TOLD_ELSEWHERE]


def cautions(results: CampaignResults) -> list[Warned]:
    """Everything to be warned of, from the campaign down to its current runs; what is said of many is said once."""
    together: dict[tuple[str, str], dict[str, None]] = {}
    for caution, owner in _all_cautions(results):
        subject = caution.subject or owner
        together.setdefault((caution.kind, caution.text), {}).update({subject: None} if subject else {})
    return [Warned(kind=kind, text=text, subjects=tuple(subjects)) for (kind, text), subjects in together.items()]


def _all_cautions(results: CampaignResults) -> Iterable[tuple[Caution, str]]:
    yield from ((caution, "") for caution in (*results.cautions, *results.ranking.cautions))
    for group in results.groups:
        yield from ((caution, group.group) for caution in group.cautions)
    for run in results.runs:
        if run.attempt.current:
            # Figures of a run that failed count nowhere, so their cautions would only distract from its cause.
            of_measure = run.measure.cautions if run.measure and run.outcome is Outcome.OK else ()
            yield from ((caution, run.attempt.spec.run) for caution in (*run.attempt.cautions, *of_measure))
