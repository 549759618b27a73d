"""Runs that failed, as both the page and the terminal tell them.

In: CampaignResults. Out: one `Failure` for runs that ended the same way for the same reason, with what to do, whose fault it is, and of one
that ran out of memory what fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.log_lines import shown_lines
from seatrial.records.outcome import Fault, RunOutcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.signatures.registry import fault_of

WHAT_FITS = "what_fits"
"""The kind of caution that is told here."""
RUN_AGAIN = (
    "The platform's fault: it does not weigh on its group. Mend it, then the same command runs it again; no difference may be put down to "
    "the code before."
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Runs that ended the same way for the same reason; `detail`, `log_tail` and `telling` are the first one's."""

    runs: tuple[str, ...]
    outcome: str
    cause: str
    detail: str
    action: str
    duration_s: float
    log_tail: tuple[str, ...]
    fault: str = Fault.UNKNOWN.value
    """Whose fault it is."""
    telling: tuple[str, ...] = ()
    """The lines that tell most, where no entry of the registry explains the end."""
    fits: tuple[str, ...] = ()
    """Of a run that was out of memory: what fits."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is said beside what to do."""
        return (*([RUN_AGAIN] if self.fault == Fault.INFRASTRUCTURE.value else []), *self.fits)


def failures(results: CampaignResults) -> list[Failure]:
    """Failed current runs, those of one cause that say the same together."""
    together: dict[tuple[str, str, str], list[MeasuredRun]] = {}
    for run, ended in _failed(results):
        together.setdefault((ended.outcome.value, ended.cause.value, ended.detail), []).append(run)
    return [_failure(runs, results) for runs in together.values()]


def _failed(results: CampaignResults) -> Iterator[tuple[MeasuredRun, RunOutcome]]:
    for run in results.runs:
        ended = run.attempt.outcome
        if run.attempt.current and ended is not None and ended.outcome.is_failure:
            yield run, ended


def _failure(runs: list[MeasuredRun], results: CampaignResults) -> Failure:
    ended = runs[0].attempt.outcome
    assert ended is not None
    groups = {run.attempt.spec.group for run in runs}
    fits = (caution.text for caution in results.cautions if caution.kind == WHAT_FITS and caution.subject in groups)
    return Failure(
        runs=tuple(run.attempt.spec.run for run in runs),
        outcome=ended.outcome.value,
        cause=ended.cause.value,
        detail=ended.detail,
        action=ended.action,
        duration_s=ended.duration_s,
        log_tail=tuple(shown_lines(ended.log_tail)),
        fault=fault_of(ended).value,
        telling=tuple(shown_lines(ended.telling)),
        fits=tuple(dict.fromkeys(fits)),
    )
