"""Runs that failed, as both the page and the terminal tell them.

In: CampaignResults. Out: one `Failure` for runs that ended the same way for the same reason, with what to do, whose fault it is, and of one
that ran out of memory what fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from seatrial import units
from seatrial.log_lines import shown_lines
from seatrial.records.outcome import Fault, RunOutcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.signatures.registry import fault_of

PORT = re.compile(r"(\bport[ :=]+|\blocalhost:|\b\d{1,3}(?:\.\d{1,3}){3}:|\]:)\d{4,5}\b", re.IGNORECASE)
"""`port 29501`, `localhost:29501`, `10.0.0.1:29501`, `[::1]:29501`; not the line of `train.py:1200`."""
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
    """Of the one that ended soonest."""
    log_tail: tuple[str, ...]
    fault: str = Fault.UNKNOWN.value
    """Whose fault it is."""
    telling: tuple[str, ...] = ()
    """The lines that tell most, where no entry of the registry explains the end."""
    fits: tuple[str, ...] = ()
    """Of a run that was out of memory: what fits."""
    longest_s: float | None = None
    """Of the one that ended last, where that is another time."""

    @property
    def after(self) -> str:
        """`12.0 s`, `12.0 s to 1m 04s`."""
        return shortest_to_longest(self.duration_s, self.longest_s)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is said beside what to do."""
        return remarks_of(self.fault, self.fits)


def shortest_to_longest(*times_s: float | None) -> str:
    """`12.0 s`, `12.0 s to 1m 04s`; '' where no time is known."""
    return " to ".join(dict.fromkeys(units.format_duration(time_s) for time_s in times_s if time_s is not None))


def remarks_of(fault: str, fits: Iterable[str]) -> tuple[str, ...]:
    """That the platform was at fault, and what fits."""
    return (*([RUN_AGAIN] if fault == Fault.INFRASTRUCTURE.value else []), *fits)


def failures(results: CampaignResults) -> list[Failure]:
    """Failed current runs, those of one cause that say the same together."""
    together: dict[tuple[str, str, str], list[MeasuredRun]] = {}
    for run, ended in _failed(results):
        together.setdefault((ended.outcome.value, ended.cause.value, _without_ports(ended)), []).append(run)
    return [_failure(runs, results) for runs in together.values()]


def _without_ports(ended: RunOutcome) -> str:
    """What it said, less the ports that every start chooses anew: the run's own wherever it stands, others where they are called one."""
    told = re.sub(rf"(?<!\d){ended.port}(?!\d)", "…", ended.detail) if ended.port else ended.detail
    return PORT.sub(r"\1…", told)


def _failed(results: CampaignResults) -> Iterator[tuple[MeasuredRun, RunOutcome]]:
    for run in results.runs:
        ended = run.attempt.outcome
        if run.attempt.current and ended is not None and ended.outcome.is_failure:
            yield run, ended


def _failure(runs: list[MeasuredRun], results: CampaignResults) -> Failure:
    ended = runs[0].attempt.outcome
    assert ended is not None
    lengths_s = [run.attempt.outcome.duration_s for run in runs if run.attempt.outcome]
    groups = {run.attempt.spec.group for run in runs}
    fits = (caution.text for caution in results.cautions if caution.kind == WHAT_FITS and caution.subject in groups)
    return Failure(
        runs=tuple(run.attempt.spec.run for run in runs),
        outcome=ended.outcome.value,
        cause=ended.cause.value,
        detail=ended.detail,
        action=ended.action,
        duration_s=min(lengths_s),
        longest_s=max(lengths_s),
        log_tail=tuple(shown_lines(ended.log_tail)),
        fault=fault_of(ended).value,
        telling=tuple(shown_lines(ended.telling)),
        fits=tuple(dict.fromkeys(fits)),
    )
