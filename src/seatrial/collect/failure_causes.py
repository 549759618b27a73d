"""Why a run failed, from its exit code and the end of its log; and the troubleshooting page.

In: the launcher's exit code and lines of its output. Out: a `Diagnosis`: cause, fault, the decisive line, and what to do.

Signs come from the registry of failure signatures. When one rank dies the others complain too, and the launcher reports all of it again:
so signs of a lost peer count only where no other sign is found, and among equals the earliest line is the cause; but a broken GPU comes
before what the ranks on it print. Lines that the run survived (log_evidence.py) are no cause. An exit code that a script chose itself
counts before what the other ranks print about losing it. Without any sign the cause is unknown and the most relevant lines are kept.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from seatrial.collect.launcher_log import PrefixedLine, host_in, split_prefixes
from seatrial.collect.log_evidence import (
    CHAINED,
    HARMLESS,
    Weight,
    ends_traceback,
    error_lines,
    final_lines,
    is_indented,
    weigh_lines,
    without_harmless,
)
from seatrial.core.files import open_file
from seatrial.core.log_lines import strip_colours
from seatrial.records.outcome import Cause, Fault
from seatrial.records.signatures.registry import STAGE1, Signature, general, of_exit_code, signature, signatures

LONGEST_TEXT = 200_000
LONGEST_DETAIL = 500


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why a run failed, and what to do."""

    cause: Cause
    detail: str
    action: str
    signature: str
    """The entry of the registry that the advice comes from."""
    fault: Fault = Fault.UNKNOWN
    telling: tuple[str, ...] = ()
    """The most relevant lines of the log, where no signature matched, or only one of a lost peer."""
    host: str = ""
    """Of a run on many hosts, the one whose line shows the cause; empty where no single line does."""


class _Line(NamedTuple):
    """One line of the log: its prefixes, text, matching signature, weight, and whether it ends a traceback."""

    source: str
    text: str
    sign: Signature | None
    weight: Weight
    raised: bool


# Messages of torchrun, srun, pdsh and the interpreter about the end of other processes (only a -9 in them matters), and warnings of
# Python's: the run went on after them.
NOISE = re.compile(
    r"ChildFailedError|SignalException|closing signal SIG|failed \(exitcode: -?(?!9\b)\d|KeyboardInterrupt|resource_tracker"
    r"|^srun: (?:error: \S+: tasks? \S+: (?:Exited with exit code|Terminated)|Job step aborted|Terminating)"
    r"|^pdsh@|ssh exited with exit code|^\S{1,400}:\d+: \w*Warning: "
)
# Lines of torchrun's and deepspeed's own report of a failed run.
LAUNCHER_REPORT = re.compile(r"^\S+ FAILED$|^Root Cause|^Failures:|^Traceback \(most|\[launch\.py:\d+:\w+\]")
# torchrun's report of the rank that ended first.
ROOT_CAUSE = "Root Cause (first observed failure)"
REPORT_FIELD = re.compile(r"^\s+(rank|exitcode)\s*: (-?\d+)")
REPORT_LINES = 8
# The report of deepspeed's launcher.
DEEPSPEED_REPORT = re.compile(r"\[launch\.py:\d+:\w+\] .* exits with return code = (-?\d{1,9})$")
# Exit codes of a rank that raised, aborted or was sent TERM: its own lines show more.
RAISED = 1
UNINFORMATIVE_CODES = (RAISED, -6, -15)
# Signals of a fault in native code; an abort (6) is also how torch ends after an error it has printed.
NATIVE_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# A shell, or a launcher that passes on a negative code, exits with this plus the signal that ended its child.
SHELL_SIGNALS = 128
# Causes that an exit code shows by itself.
EXIT_CODE_DETAILS = {
    Cause.KILLED: "a process of the run was killed by signal 9",
    Cause.PROGRAM_MISSING: "the program was not found (exit code 127)",
}


def diagnose(exit_code: int | None, lines: Sequence[str]) -> Diagnosis:
    """The cause that the log shows, else the one that the exit code shows."""
    tail = _tail(lines)
    found = _root_cause(tail, Weight.FULL) or _launcher_report(tail) or _root_cause(tail, Weight.DOUBTFUL)
    if found is not None:
        return found
    after_effect = _after_effect(tail)
    if after_effect is None and exit_code == RAISED and (last := _first_raised(_of_weight(tail, Weight.SURVIVED))):
        # Python exits so after an exception, and there is no other.
        return _from_exception(last[1])
    # Neither the code of an exception, nor of a signal as Python or a shell reports it: the script itself chose it.
    if after_effect is not None and exit_code is not None and 1 < exit_code < SHELL_SIGNALS:
        detail = f"ended with exit code {exit_code}; the log shows only the consequence: {after_effect.detail}"
        return _diagnosis(_exit_code_entry(exit_code), detail)
    # A signal that no process sends itself in good order: the others only complain about the process it ended.
    if after_effect is None or (exit_code is not None and -exit_code in (signal.SIGKILL, *NATIVE_SIGNALS)):
        return _from_exit_code(exit_code, tail)
    # That a peer is gone explains nothing: other lines of the log may.
    return replace(after_effect, telling=error_lines(_informative_lines(tail))) if signature(after_effect.signature).echo else after_effect


def _root_cause(lines: Sequence[_Line], weight: Weight) -> Diagnosis | None:
    """The earliest line of that weight with a signature or the end of a traceback; before it a signature that outranks the others."""
    own = _of_weight(lines, weight)
    outranking = next((line for line in own if line.sign and line.sign.outranks), None)
    if outranking is not None:
        return _from_line(outranking)
    sign_at = next((index for index, line in enumerate(own) if _is_root(line.sign)), None)
    first = _first_raised(own)
    # The last exception of a chain counts, unless only the first has a signature.
    if first is not None and (sign_at is None or first[0] < sign_at or (first[0] == sign_at and _is_root(first[1].sign))):
        return _from_exception(first[1])
    return None if sign_at is None else _from_line(own[sign_at])


def _of_weight(lines: Sequence[_Line], weight: Weight) -> list[_Line]:
    return [line for line in lines if line.weight is weight]


def _from_exception(line: _Line) -> Diagnosis:
    return _from_line(line) or replace(_diagnosis(general(Cause.EXCEPTION), line.text), host=host_in(line.source))


def _from_line(line: _Line) -> Diagnosis | None:
    return replace(_diagnosis(line.sign, line.text), host=host_in(line.source)) if line.sign else None


def _launcher_report(lines: Sequence[_Line]) -> Diagnosis | None:
    """What the launcher reports about the rank that ended first, where that is more than the other ranks' complaints."""
    rank, code = _torchrun_report(lines) or _deepspeed_report(lines) or ("", RAISED)
    if code in UNINFORMATIVE_CODES:
        return None
    if code == -9:
        return _diagnosis(general(Cause.KILLED), f"{rank} was killed by signal 9")
    if -code in NATIVE_SIGNALS:
        return _diagnosis(general(Cause.NATIVE_CRASH), f"{rank} crashed: {signal.Signals(-code).name}")
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return _unexplained(general(Cause.EXIT_CODE), f"{rank} ended first, {how}, and printed no reason", lines, rank)


def _torchrun_report(lines: Sequence[_Line]) -> tuple[str, int] | None:
    """(which rank, its exit code)"""
    begin = next((index for index, line in enumerate(lines) if line.text.startswith(ROOT_CAUSE)), len(lines))
    # Every host's torchrun reports, and their lines may be interleaved.
    own = [line for line in lines[begin:] if line.source == lines[begin].source][:REPORT_LINES]
    fields = {match.group(1): match.group(2) for line in own if (match := REPORT_FIELD.match(line.text))}
    return (f"rank {fields.get('rank', '?')}", int(fields["exitcode"])) if "exitcode" in fields else None


def _deepspeed_report(lines: Sequence[_Line]) -> tuple[str, int] | None:
    """Likewise. The command it prints beside the code is that of its last rank, whichever ended: the rank is unknown."""
    codes = (int(match.group(1)) for line in lines if (match := DEEPSPEED_REPORT.search(line.text)))
    return next((("a rank", code) for code in codes), None)


def _after_effect(lines: Sequence[_Line]) -> Diagnosis | None:
    """The earliest after-effect that is more than the loss of a peer, else the earliest."""
    signed = [line for line in lines if line.sign and line.sign.after_effect and line.weight > Weight.IGNORED]
    line = next((line for line in signed if line.sign and not line.sign.echo), signed[0] if signed else None)
    return _from_line(line) if line else None


def _tail(lines: Sequence[str]) -> list[_Line]:
    """The last lines, without colours, prefixes and harmless text, up to a size that is quick to search."""
    kept, size = [], 0
    for line in reversed(lines):
        size += len(line)
        if size > LONGEST_TEXT:
            break
        kept.append(without_harmless(strip_colours(line)))
    split = split_prefixes(kept[::-1])
    judged = zip(split, weigh_lines(split), ends_traceback(split), strict=True)
    return [_Line(line.source, line.text, _sign(line.text), weight, is_raised) for line, weight, is_raised in judged]


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], Signature], ...]:
    return tuple((re.compile(pattern), entry) for entry in signatures() if not entry.slows for pattern in entry.patterns)


def _sign(text: str) -> Signature | None:
    if is_indented(text) or NOISE.search(text):
        return None
    return next((sign for pattern, sign in _compiled() if pattern.search(text)), None)


def _is_root(sign: Signature | None) -> bool:
    return sign is not None and not sign.after_effect


def _first_raised(lines: Sequence[_Line]) -> tuple[int, _Line] | None:
    """Index of the first traceback's exception, and the last exception of its chain, following one source's lines only."""
    found: tuple[int, _Line] | None = None
    chained = True
    for index, line in enumerate(lines):
        if found and line.source != found[1].source:
            continue
        if CHAINED.search(line.text):
            chained = True
        elif chained and _is_raised(line):
            found, chained = (found[0] if found else index, line), False
    return found


def _is_raised(line: _Line) -> bool:
    """Whether the line ends a traceback, and not that of a rank which only lost its peer."""
    return line.raised and not NOISE.search(line.text) and (line.sign is None or not line.sign.after_effect)


def _from_exit_code(exit_code: int | None, lines: Sequence[_Line]) -> Diagnosis:
    if exit_code is None:
        return _unexplained(general(Cause.UNKNOWN), "no exit code is known and the log shows no cause", lines)
    entry = of_exit_code(exit_code)
    if entry is not None and entry.cause in EXIT_CODE_DETAILS:
        return _diagnosis(entry, EXIT_CODE_DETAILS[entry.cause])
    if -exit_code in (*NATIVE_SIGNALS, signal.SIGABRT):
        return _diagnosis(general(Cause.NATIVE_CRASH), f"the process crashed: {signal.Signals(-exit_code).name}")
    how = f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
    return _unexplained(_exit_code_entry(exit_code), f"the launcher ended {how} and the log shows no cause", lines)


def _exit_code_entry(exit_code: int | None) -> Signature:
    """The entry of an exit code that does not show the cause alone."""
    entry = of_exit_code(exit_code)
    return entry if entry is not None and entry.cause is Cause.EXIT_CODE else general(Cause.EXIT_CODE)


def _unexplained(entry: Signature, detail: str, lines: Sequence[_Line], ended_first: str = "") -> Diagnosis:
    own = _informative_lines(lines)
    errors = error_lines(own)
    more = f"; most relevant line: {errors[0]}" if errors else ""
    return _diagnosis(entry, detail + more, errors or final_lines(own, f"[{ended_first.replace(' ', '')}]:"))


def _informative_lines(lines: Sequence[_Line]) -> list[PrefixedLine]:
    """Lines but those about lost peers, and the launcher's own."""
    own = (line for line in lines if (line.sign is None or not line.sign.after_effect) and line.weight > Weight.IGNORED)
    own = (line for line in own if not NOISE.search(line.text) and not LAUNCHER_REPORT.search(line.text))
    return [PrefixedLine(line.source, line.text) for line in own]


def _diagnosis(entry: Signature, detail: str, telling: tuple[str, ...] = ()) -> Diagnosis:
    detail = " ".join(detail.split())
    shortened = detail if len(detail) <= LONGEST_DETAIL else detail[: LONGEST_DETAIL - 1] + "…"
    return Diagnosis(cause=entry.cause, detail=shortened, action=entry.action, signature=entry.id, fault=entry.fault, telling=telling)


# Searched, not matched: where ranks share the output, an unfinished line of theirs may precede it.
FINISHED = re.compile(rb"\[launch\.py:\d+:\w+\] Process (\d+) exits successfully\.")
# The runner's own line: the command it starts, with ranks and hosts in it.
STARTED = re.compile(rb"\[runner\.py:\d+:main\] cmd = .*?--world_info=([A-Za-z0-9_=-]{1,100000})")
# Lines with a rank's prefix are not the launcher's.
RANK_PREFIX = b"[rank"


def num_finished_ranks(logs: Iterable[Path]) -> int:
    """How many ranks deepspeed's launchers reported to have finished successfully; logs that cannot be read count 0.

    The `deepspeed` runner returns 0 even when the launcher it started (its own, or pdsh) was killed, so its exit code proves nothing. Each
    host has its own log, and process numbers of two hosts may be equal."""
    return sum(len(_finished_processes(log)) for log in logs)


def _finished_processes(launcher_log: Path) -> set[bytes]:
    found: set[bytes] = set()
    with contextlib.suppress(OSError), open_file(launcher_log) as log:
        for line in log:
            if b"exits successfully." in line and not line.startswith(RANK_PREFIX):
                found.update(FINISHED.findall(line))
    return found


def num_started_ranks(launcher_log: Path) -> int | None:
    """How many ranks the last deepspeed runner in a log starts, by its own line; None without one."""
    found: int | None = None
    with contextlib.suppress(OSError), open_file(launcher_log) as log:
        for line in log:
            if b"--world_info=" in line and not line.startswith(RANK_PREFIX) and (match := STARTED.search(line)):
                found = _num_ranks(match.group(1)) or found
    return found


def _num_ranks(world_info: bytes) -> int | None:
    """Of `{"node1": [0, 1], …}` in base64; None for anything else."""
    try:
        hosts = json.loads(base64.urlsafe_b64decode(world_info))
        return sum(len(slots) for slots in hosts.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


_HEAD = """\
# When something goes wrong{subject}

For anyone with a failed run.
Generated by `make docs` from the registry that the harness itself uses (`src/seatrial/records/signatures/*.toml`,
`src/seatrial/collect/log_evidence.py`): "what to do" is what `seatrial` prints and what `summary.md` says under Failures. A cause is the
word under `cause` in `outcome.json`, `run_manifest.tsv` and `skipped_runs.tsv`. `seatrial doctor PLAN` finds many of these before a
campaign starts.

`fault` in `outcome.json` says whose fault it is. One of the platform (`infrastructure`) does not count against a group: run it again on a
healthy platform. One of the group's settings (`configuration`) or of the script (`code`) does, and so does an unknown one.
{more}
"""
_MORE = {
    "": "",
    STAGE1: "\nThese are the entries of the stage-1 procedures; all are in [docs/troubleshooting.md](../../../docs/troubleshooting.md).",
}
_SUBJECTS = {"": "", STAGE1: ": stage 1"}
_BY_LINE = """\
## Failures recognised by a line of the log

The earliest matching line counts, of whichever rank it is. An after-effect is what ranks print when they have lost another one: it counts
only where no other line says more."""
_BY_END = "## Failures recognised by a limit, an exit code or what is missing"
_SLOW = """\
## Signs of slowness

No run fails by them. Those that a run shows stand as advice beside a throughput criterion that fails. They are found in the head of
`launcher.log`, in effective settings, in the ranks' environment variables, or by what analysis found under Stability."""
_NO_FAILURE = """\
## No failure, and yet worth a look

No run ends by it, and its cause is `none`; where a caution is named, it is in the report."""
_HARMLESS = """\
## Harmless lines

Never taken for a failure, not even where the log of a failed run ends with them. They are counted under Health in `summary.md` and under
`health` in `summary.json`. Nothing needs doing."""


def troubleshooting_page(topic: str = "") -> str:
    """docs/troubleshooting.md, generated from the registry: all entries, or those of one topic for its runbook."""
    entries = [entry for entry in signatures() if not topic or topic in entry.topics]
    failures = [entry for entry in entries if entry.cause is not Cause.NONE]
    slow = [(one.symptom, one.why, one.action, f"`{one.id}`") for one in entries if one.slows]
    others = [one for one in entries if one.cause is Cause.NONE and not one.slows]
    harmless = [(one.symptom, one.meaning, f"`{one.id}`") for one in HARMLESS if not topic or topic in one.topics]
    parts = [
        _HEAD.format(subject=_SUBJECTS[topic], more=_MORE[topic]).rstrip() + "\n",
        _failure_table(_BY_LINE, [entry for entry in failures if entry.patterns]),
        _failure_table(_BY_END, [entry for entry in failures if not entry.patterns]),
        _table(_SLOW, ("you see", "why", "what to do", "sign"), slow),
        _table(
            _NO_FAILURE,
            ("you see", "why", "what to do", "caution"),
            [(one.symptom, one.why, one.action, f"`{one.caution}`" if one.caution else "–") for one in others],
        ),
        _table(_HARMLESS, ("you see", "what it means", "under health"), harmless),
    ]
    return "\n".join(parts)


def _failure_table(heading: str, entries: Sequence[Signature]) -> str:
    rows = [
        (one.symptom, one.why, one.action, f"`{one.cause.value}`{' (after-effect)' * one.after_effect}", one.fault.value) for one in entries
    ]
    return _table(heading, ("you see", "why", "what to do", "cause", "whose fault"), rows)


def _table(heading: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"{heading}\n", f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    for row in rows:
        cells = " | ".join(cell.replace("|", "\\|") for cell in row)
        lines.append(f"| {cells} |")
    return "\n".join(lines) + "\n"
