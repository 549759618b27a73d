"""`seatrial diagnose LOG…`: reads the logs of any job, without a campaign: how it ended, the first cause, steps and losses."""

from __future__ import annotations

import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import AsJson
from seatrial.core.errors import DONE, FAILED, INCONCLUSIVE, UsageError
from seatrial.core.text import format_bytes, format_duration
from seatrial.records.outcome import Cause, Diagnosis, Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.results.diagnose import LogFile, LogReport
    from seatrial.results.step_summary import StepSummary

EXAMPLES = {
    "diagnose": "seatrial diagnose slurm-4711.out slurm-4711.err\n\ntorchrun train.py 2>&1 | tee job.log; seatrial diagnose job.log"
}
STDIN = "-"
EXIT_CODES = {Outcome.OK: DONE, Outcome.FAILED: FAILED, Outcome.INTERRUPTED: FAILED, None: INCONCLUSIVE}
STYLES = {
    Outcome.OK: ("OK", "bold green"),
    Outcome.FAILED: ("FAILED", "bold red"),
    Outcome.INTERRUPTED: ("INTERRUPTED", "bold red"),
    None: ("CANNOT TELL", "bold yellow"),
}
LABEL_WIDTH = 10
MAX_HEADLINE_LINES = 5
MAX_EXCERPT_LINES = 7
MAX_RELEVANT_LINES = 4

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG…",
        help="Files of one job: its log, a Slurm .out and .err, one file for each rank or node; or a folder with them; `-` for stdin.",
        show_default=False,
    ),
]
ExitCode = Annotated[
    int | None,
    typer.Option("--exit-code", metavar="N", help="What the job returned, if known; -9 or 137 for signal 9. A pipe into tee hides it."),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        help="Expected steps. A log that reaches them counts as complete, one that does not as incomplete.",
        min=1,
    ),
]


def diagnose(logs: Logs, exit_code: ExitCode = None, steps: Steps = None, as_json: AsJson = False) -> int:
    """Read the logs of any job: how it ended, the first cause with its rank and lines, what to do, steps, rate and losses.

    Needs no campaign and writes nothing. Exit code: 0 the log shows a good end, 2 a failure or an interrupt, 3 it shows neither.
    """
    from seatrial.cli.program import console_for, print_json
    from seatrial.records.codec import to_json
    from seatrial.results.diagnose import diagnose_logs

    with _files(logs) as files:
        report = diagnose_logs(files, exit_code, steps)
    _print(console_for(as_json=as_json, plain=True), report)
    code = EXIT_CODES[report.diagnosis.outcome]
    if as_json:
        print_json(to_json(report))
    return code


@contextmanager
def _files(logs: list[str]) -> Iterator[list[LogFile]]:
    """Files to read; stdin is kept in a temporary file, since it is read twice."""
    from seatrial.results.diagnose import LogFile, find_logs

    if STDIN not in logs:
        yield find_logs([Path(log) for log in logs])
        return
    if len(logs) > 1:
        raise UsageError("`-` reads the log from stdin: pass no other files")
    if sys.stdin is None:
        raise UsageError("stdin is closed: name a file")
    with tempfile.NamedTemporaryFile(prefix="seatrial-", suffix=".log") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield [LogFile(path=Path(kept.name), name="stdin")]


def _print(console: Console, report: LogReport) -> None:
    found = report.diagnosis
    title, style = STYLES.get(found.outcome, STYLES[None])
    for number, line in enumerate(_wrapped(_headline(report), console.width - len(title) - 2, MAX_HEADLINE_LINES)):
        console.print(f"{' ' * len(title) if number else title}  {line}", style=style, soft_wrap=True)
    if found.outcome is not Outcome.OK and found.cause is not Cause.UNKNOWN:
        _print_lines(console, found)
    for name, text in (*_cause_facts(report), *_facts(report)):
        for number, line in enumerate(_wrapped(text, console.width - LABEL_WIDTH)):
            console.print(f"{'' if number else name:<{LABEL_WIDTH}}{line}", soft_wrap=True)


def _wrapped(text: str, width: int, max_lines: int | None = None) -> list[str]:
    """Wrapped lines that break neither flags nor paths."""
    return textwrap.wrap(text, max(width, 50), max_lines=max_lines, placeholder=" …", break_long_words=False, break_on_hyphens=False)


def _headline(report: LogReport) -> str:
    from seatrial.collect.logs.diagnosis import NO_CAUSE

    found = report.diagnosis
    if found.outcome is Outcome.OK:
        return "the log shows a good end" if found.good_end else "exit code 0, and no failure in the log"
    if found.outcome is Outcome.FAILED:
        noticed = "" if found.noticed_by is None else f", noticed by rank {found.noticed_by}"
        who = f" on {found.who}" if found.who else noticed
        where = f", host {found.host}" if found.host else ""
        return f"{found.signature or found.cause.value}{who}{where}: {found.detail}"
    if found.outcome is Outcome.INTERRUPTED:
        return found.detail
    if found.cause is Cause.NAN and found.good_end:
        return f"ended, but {found.detail}"
    if found.traceback_at_end and found.good_end:
        return f"training seems to have finished, but a traceback is near the end: {found.detail}"
    if found.traceback_at_end:
        ended = "exited 0" if report.exit_code == 0 else "ended"
        return f"{ended} after a traceback: probably failed ({found.detail})"
    if found.cause is Cause.UNKNOWN and not found.detail.startswith(NO_CAUSE):
        ended = "exited 0, but " if report.exit_code == 0 else "the log says that training has ended, but " if found.good_end else ""
        return f"{ended}{found.detail}"
    if report.exit_code is not None:
        return f"exited 0, and the log shows signs of a failure: {found.detail}"
    if found.cause is not Cause.UNKNOWN:
        end = "training seems to have finished, but there is an error" if found.good_end else "no good end in the log, and an error"
        return f"{end}: {found.detail}. It may have failed; pass --exit-code N"
    return "no good end and no failure in the log: pass --exit-code N"


def _print_lines(console: Console, found: Diagnosis) -> None:
    """Print the frames and the line that show the cause, else the most relevant lines."""
    lines = found.excerpt[-MAX_EXCERPT_LINES:] if len(found.excerpt) > 1 else found.telling[:MAX_RELEVANT_LINES]
    for line in lines:
        console.print(f"  │ {line}", style="dim" if line.startswith(" ") else "", no_wrap=True, overflow="ellipsis")


def _cause_facts(report: LogReport) -> Iterator[tuple[str, str]]:
    found = report.diagnosis
    if found.outcome is Outcome.OK or found.cause is Cause.NONE:
        return
    where = " ".join(part for part in (found.source, f"line {found.line:,}" if found.line else "") if part)
    later = found.num_consequences
    after = f"{later:,} later {'error is a consequence' if later == 1 else 'errors are consequences'}" if later else ""
    if where or after:
        yield "where", "; ".join(part for part in (where, after) if part)
    if found.action and (found.outcome is Outcome.FAILED or found.line or found.cause is Cause.NAN):
        yield "do", found.action


def _facts(report: LogReport) -> Iterator[tuple[str, str]]:
    steps = report.steps
    if steps is not None and steps.last is not None:
        yield "steps", _steps(steps)
    elif report.diagnosis.last_step is not None:
        yield "steps", f"up to {report.diagnosis.last_step:,}"
    if steps is not None and (loss := _loss(steps)):
        yield "loss", loss
    if report.reported:
        shown = (
            f"{name} {format_duration(value) if name == 'train_runtime' else _figure(value)}" for name, value in report.reported.items()
        )
        yield "reported", ", ".join(shown)
    names = ", ".join(report.files[:3]) + (f" and {len(report.files) - 3} more" if len(report.files) > 3 else "")
    ended = "" if report.exit_code is None else f"; exit code {report.exit_code}"
    yield "read", f"{names}: {report.num_lines:,} lines, {format_bytes(report.num_bytes)}{ended}"


def _steps(steps: StepSummary) -> str:
    parts = [f"{steps.first:,} to {steps.last:,}" + (f" of {steps.total:,}" if steps.total else "")]
    if steps.num_started_over:
        times = "once" if steps.num_started_over == 1 else f"{steps.num_started_over} times"
        parts.append(f"numbers that start over {times} (new epochs or a restart; the log does not show which)")
    if steps.num_restarts:
        parts.append(f"after {steps.num_restarts} {'restart' if steps.num_restarts == 1 else 'restarts'}")
    rates = [f"{_figure(steps.steps_per_s)} steps/s by {steps.rate_from}"] if steps.steps_per_s is not None else []
    rates += [f"{steps.tokens_per_s:,.0f} tokens/s as printed"] if steps.tokens_per_s is not None else []
    rates += [f"{_figure(steps.samples_per_s)} samples/s as printed"] if steps.samples_per_s is not None else []
    if rates and steps.rates_of_bytes:
        rates[-1] += f" in {_both_ends(steps)}"
    return ", ".join([*parts, *rates])


def _both_ends(steps: StepSummary) -> str:
    return f"the first and last {format_bytes(steps.rates_of_bytes or 0)}"


def _loss(steps: StepSummary) -> str:
    parts = []
    if steps.nan_from is not None:
        parts.append(f"nan or inf from step {steps.nan_from:,} to the end")
    elif steps.num_nan:
        parts.append(f"nan or inf in {steps.num_nan:,} of {steps.num_lines:,} lines")
    if steps.first_loss is not None and steps.last_loss is not None:
        before = "before that " if parts else ""
        lowest = f"lowest {steps.lowest_loss:.4g}{'' if steps.is_whole else f' in {_both_ends(steps)}'}"
        parts.append(f"{before}{steps.first_loss:.4g} → {steps.last_loss:.4g}, {lowest}")
    if steps.last is None:
        parts.append("the log has no step numbers")
    return "; ".join(parts)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
