"""How an attempt of the original scripts ended, and why.

In: the attempt, and when it began and ended. Out: `RunOutcome`. `timeout` ends a run with exit code 124, and runs that stood still were
seen to end with 125; 128 and a signal's number is how a shell tells of a signal; what the log's end tells counts before the code. An
attempt without a row was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.collect.failure.cause import SHELL_SIGNALS, Diagnosis, diagnose
from seatrial.collect.original.advice import action_for
from seatrial.collect.original.cells import whole
from seatrial.collect.original.manifest_rows import Row
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.spans import Span
from seatrial.machine.secrets import mask_lines, mask_text
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.signatures.registry import fault_named
from seatrial.units import format_duration

TIMEOUT_CODE = 124
STOOD_STILL_CODE = 125
"""A time-out too where steps were left to do; `timeout` itself ends so where it could not start the command."""
MOST_SIGNALS = 64
TERM = 15
LOG_TAIL_LINES = 80
NO_WORD = (Cause.EXIT_CODE, Cause.UNKNOWN, Cause.NONE)
"""Causes that say no more than the exit code does."""


@dataclass(frozen=True, kw_only=True)
class _End:
    outcome: Outcome
    cause: Cause
    detail: str = ""
    action: str = ""
    signature: str = ""
    """The entry of the registry; empty for the one named like the cause."""
    telling: tuple[str, ...] = ()


def outcome_of(attempt: OriginalAttempt, number: int, spec: RunSpec, span: Span) -> RunOutcome:
    """The record; lines of the log in it are masked, as it is sent around."""
    lines = _lines(attempt)
    end = _end(attempt, lines, spec, span)
    told_by = "" if end.cause is Cause.NONE else end.signature or end.cause.value
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
        signature=told_by,
        fault=fault_named(told_by),
        telling=mask_lines(end.telling),
    )


def _lines(attempt: OriginalAttempt) -> tuple[str, ...]:
    """What the attempt printed: the trainer's lines, then the launcher's, which tell of the end."""
    return (*(attempt.segment.lines if attempt.segment else ()), *(attempt.block.output if attempt.block else ()))


def _end(attempt: OriginalAttempt, lines: tuple[str, ...], spec: RunSpec, span: Span) -> _End:
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
    if row.exit_code == TIMEOUT_CODE or (row.exit_code == STOOD_STILL_CODE and _has_steps_left(attempt, spec)):
        return _timed_out(found, f"{_how_it_stood(attempt, spec, row.exit_code)} after {format_duration(span.duration_s)}")
    if _never_began(row, attempt):
        return _End(
            outcome=Outcome.TIMEOUT,
            cause=Cause.START_LIMIT,
            detail="ended from outside before train.log was there, as the driver does after MAX_WAIT_TRAIN_LOG_SEC",
            action="read launcher.log for what it was waiting for; raise the limit if the start is only slow",
        )
    return _explained(Outcome.FAILED, found)


def _explained(outcome: Outcome, found: Diagnosis) -> _End:
    return _End(
        outcome=outcome,
        cause=found.cause,
        detail=found.detail,
        action=action_for(found),
        signature=found.signature,
        telling=found.telling,
    )


def _timed_out(found: Diagnosis, detail: str) -> _End:
    if found.cause not in NO_WORD:
        return _explained(Outcome.TIMEOUT, found)
    return _End(
        outcome=Outcome.TIMEOUT,
        cause=Cause.RUN_LIMIT,
        detail=detail,
        action="see in train.log whether it was slow or stood still; raise RUN_TIMEOUT_SEC only if it was slow",
    )


def _how_it_stood(attempt: OriginalAttempt, spec: RunSpec, exit_code: int) -> str:
    if exit_code == TIMEOUT_CODE:
        return f"`timeout` ended it (exit code {TIMEOUT_CODE})"
    return f"it was ended at step {attempt.last_step}, the last being {(spec.steps or 1) - 1} (exit code {exit_code}),"


def _has_steps_left(attempt: OriginalAttempt, spec: RunSpec) -> bool:
    """Whether it came to a step and not to the last; False where either is not known."""
    return attempt.last_step is not None and spec.steps is not None and attempt.last_step < spec.steps - 1


def _never_began(row: Row, attempt: OriginalAttempt) -> bool:
    return attempt.segment is None and row.exit_code == SHELL_SIGNALS + TERM


def _as_signal(exit_code: int | None) -> int | None:
    """The driver's exit codes are a shell's: 137 is signal 9."""
    if exit_code is not None and SHELL_SIGNALS < exit_code <= SHELL_SIGNALS + MOST_SIGNALS:
        return SHELL_SIGNALS - exit_code
    return exit_code
