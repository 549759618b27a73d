"""How an attempt of the original scripts ended, and why.

In: the attempt, and when it began and ended. Out: `RunOutcome`. `timeout` ends a run with exit code 124; 128 and a signal's number is how a
shell tells of a signal; what the log's end tells counts before the code. An attempt without a row was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.collect.failure import Diagnosis, diagnose
from seatrial.collect.original.manifest_rows import Row, whole
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.machine.secrets import mask_lines, mask_text
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.units import format_duration

TIMEOUT_CODE = 124
SHELL_SIGNALS = 128
MOST_SIGNALS = 64
TERM = 15
LOG_TAIL_LINES = 80
NO_WORD = (Cause.EXIT_CODE, Cause.UNKNOWN, Cause.NONE)
"""Causes that say no more than the exit code does."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """When an attempt began and ended, seconds since the epoch; None where no file tells."""

    first_t: float | None = None
    last_t: float | None = None
    duration_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _End:
    outcome: Outcome
    cause: Cause
    detail: str = ""
    action: str = ""


def span_of(attempt: OriginalAttempt, zone_s: float) -> Span:
    """The driver's own start and duration; the stamps of train.log where it tells none."""
    segment, row = attempt.segment, attempt.row
    start_s = attempt.block.start_local_s if attempt.block else None
    first_s, last_s = (segment.first_local_s, segment.last_local_s) if segment else (None, None)
    began_s = first_s if start_s is None else start_s
    duration_s = row.duration_s if row else None
    if duration_s is None:
        duration_s = max(last_s - began_s, 0.0) if last_s is not None and began_s is not None else 0.0
    if start_s is None and last_s is not None:
        # The launcher's start is not told: it lies one duration before its end.
        began_s = min(began_s if began_s is not None else last_s, last_s - duration_s)
    if began_s is None:
        return Span(duration_s=duration_s)
    return Span(first_t=began_s - zone_s, last_t=max(began_s + duration_s, last_s or began_s) - zone_s, duration_s=duration_s)


def outcome_of(attempt: OriginalAttempt, number: int, spec: RunSpec, span: Span) -> RunOutcome:
    """The record; lines of the log in it are masked, as it is sent around."""
    lines = _lines(attempt)
    end = _end(attempt, lines, span)
    is_start_told = attempt.block is not None and attempt.block.start_local_s is not None
    return RunOutcome(
        run=spec.run,
        attempt=number,
        hash=spec.hash,
        outcome=end.outcome,
        cause=end.cause,
        detail=mask_text(end.detail),
        action=end.action,
        exit_code=attempt.row.exit_code if attempt.row else None,
        # A start that is only reckoned back would give a start-up time that nobody measured.
        started_t=span.first_t or 0.0 if is_start_told else 0.0,
        ended_t=span.last_t or 0.0,
        duration_s=span.duration_s,
        port=whole(attempt.cells.get("port")),
        log_tail=mask_lines(lines[-LOG_TAIL_LINES:]) if end.outcome is not Outcome.OK else (),
    )


def _lines(attempt: OriginalAttempt) -> tuple[str, ...]:
    """What the attempt printed: the trainer's lines, then the launcher's, which tell of the end."""
    return (*(attempt.segment.lines if attempt.segment else ()), *(attempt.block.output if attempt.block else ()))


def _end(attempt: OriginalAttempt, lines: tuple[str, ...], span: Span) -> _End:
    row = attempt.row
    if row is None:
        return _End(
            outcome=Outcome.INTERRUPTED,
            cause=Cause.HARNESS_LOST,
            detail="run_manifest.tsv has no row of this attempt: it was interrupted, or the row was lost",
            action="run it again",
        )
    if row.is_success:
        return _End(outcome=Outcome.OK, cause=Cause.NONE)
    found = diagnose(_as_signal(row.exit_code), lines)
    if row.exit_code == TIMEOUT_CODE:
        return _timed_out(found, span)
    if _never_began(row, attempt):
        return _End(
            outcome=Outcome.TIMEOUT,
            cause=Cause.START_LIMIT,
            detail="ended from outside before train.log was there, as the driver does after MAX_WAIT_TRAIN_LOG_SEC",
            action="read launcher.log for what it was waiting for; raise the limit if the start is only slow",
        )
    return _End(outcome=Outcome.FAILED, cause=found.cause, detail=found.detail, action=found.action)


def _timed_out(found: Diagnosis, span: Span) -> _End:
    if found.cause not in NO_WORD:
        return _End(outcome=Outcome.TIMEOUT, cause=found.cause, detail=found.detail, action=found.action)
    return _End(
        outcome=Outcome.TIMEOUT,
        cause=Cause.RUN_LIMIT,
        detail=f"`timeout` ended it after {format_duration(span.duration_s)} (exit code {TIMEOUT_CODE})",
        action="see in train.log whether it was slow or stood still; raise RUN_TIMEOUT_SEC only if it was slow",
    )


def _never_began(row: Row, attempt: OriginalAttempt) -> bool:
    return attempt.segment is None and row.exit_code == SHELL_SIGNALS + TERM


def _as_signal(exit_code: int | None) -> int | None:
    """The driver's exit codes are a shell's: 137 is signal 9."""
    if exit_code is not None and SHELL_SIGNALS < exit_code <= SHELL_SIGNALS + MOST_SIGNALS:
        return SHELL_SIGNALS - exit_code
    return exit_code
