"""Why a run failed, from its exit code and the end of its log.

In: the launcher's exit code and lines of its output. Out: a `Diagnosis`: cause, whose fault, the telling line, and what to do.

The signs are those of the registry (signatures.registry). When one rank dies the others complain too, and the launcher reports all of it
again: so signs of a lost peer count only where no other sign is found, and among equals the earliest line is the cause; but a broken GPU
counts before what the ranks on it say. Lines that the run went on after (line_weight.py) are no cause. An exit code that a script
chose for itself says more than what the other ranks say of having lost it. Harmless lines are passed over. Where no sign tells anything,
the cause stays unknown, and the most telling lines are picked.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from seatrial.collect.failure.line_weight import Weight, weights
from seatrial.collect.failure.telling_lines import last_lines, troubled_lines
from seatrial.collect.failure.tracebacks import CHAINED, is_indented, raised
from seatrial.collect.harmless import without_harmless
from seatrial.collect.logs.line_marks import MarkedLine, host_in, marked_lines
from seatrial.log_lines import plain
from seatrial.records.outcome import Cause, Fault
from seatrial.signatures.registry import general, of_exit_code, signature, signatures
from seatrial.signatures.signature import Signature

LONGEST_TEXT = 200_000
LONGEST_DETAIL = 500


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What to tell the user of a failed run."""

    cause: Cause
    detail: str
    action: str
    signature: str
    """The entry of the registry that the advice comes from."""
    fault: Fault = Fault.UNKNOWN
    telling: tuple[str, ...] = ()
    """The most telling lines of the log, where no sign was found in it, or none but that a peer is gone."""
    host: str = ""
    """Of a run on many hosts, the one whose line tells the cause; empty where no single line does."""


class _Line(NamedTuple):
    """One line of the log: who printed it, what, the sign in it, how much it counts, and whether it ends a traceback."""

    source: str
    text: str
    sign: Signature | None
    weight: Weight
    raised: bool


# What torchrun, srun, pdsh and the interpreter say about the end of other processes, -9 in it being the one thing worth reading; and what
# Python only warns of: the run went on after it.
NOISE = re.compile(
    r"ChildFailedError|SignalException|closing signal SIG|failed \(exitcode: -?(?!9\b)\d|KeyboardInterrupt|resource_tracker"
    r"|^srun: (?:error: \S+: tasks? \S+: (?:Exited with exit code|Terminated)|Job step aborted|Terminating)"
    r"|^pdsh@|ssh exited with exit code|^\S{1,400}:\d+: \w*Warning: "
)
# torchrun's own words around the report of a failed run.
OF_THE_REPORT = re.compile(r"^\S+ FAILED$|^Root Cause|^Failures:|^Traceback \(most|\[launch\.py:\d+:\w+\]")
# torchrun's report of the rank that ended first.
ROOT_CAUSE = "Root Cause (first observed failure)"
REPORTED = re.compile(r"^\s+(rank|exitcode)\s*: (-?\d+)")
REPORT_LINES = 8
# That of deepspeed's launcher.
DEEPSPEED_REPORTED = re.compile(r"\[launch\.py:\d+:\w+\] .* exits with return code = (-?\d{1,9})$")
# Exit codes of a rank that raised, aborted or was asked to stop: its own lines tell more.
RAISED = 1
UNTELLING_CODES = (RAISED, -6, -15)
# Signals that a fault in native code ends with; an abort (6) is also how torch ends after an error it has printed.
NATIVE_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# A shell, or a launcher that hands on a negative code, ends above this when a signal ended its child.
SHELL_SIGNALS = 128
# What an exit code says by itself, in words.
CODE_TELLS = {
    Cause.KILLED: "a process of the run was killed by signal 9",
    Cause.PROGRAM_MISSING: "the program was not found (exit code 127)",
}


def diagnose(exit_code: int | None, lines: Sequence[str]) -> Diagnosis:
    """The cause that the log shows, else the one that the exit code shows."""
    tail = _tail(lines)
    found = _root_cause(tail, Weight.FULL) or _reported(tail) or _root_cause(tail, Weight.DOUBTFUL)
    if found is not None:
        return found
    after_effect = _after_effect(tail)
    if after_effect is None and exit_code == RAISED and (last := _first_raised(_of(tail, Weight.PASSED))):
        # Python ends so after an exception, and there is no other.
        return _of_raised(last[1])
    if after_effect is not None and _is_chosen(exit_code):
        detail = f"ended with exit code {exit_code}; the log tells only what came of it: {after_effect.detail}"
        return _diagnosis(_of_chosen(exit_code), detail)
    if after_effect is None or _is_by_force(exit_code):
        return _by_exit_code(exit_code, tail)
    # That a peer is gone explains nothing: what else the log says may.
    return replace(after_effect, telling=troubled_lines(_own_words(tail))) if signature(after_effect.signature).echo else after_effect


def _is_chosen(exit_code: int | None) -> bool:
    """Whether the script itself chose to end with it: not that of an exception, nor of a signal as Python or a shell tells it."""
    return exit_code is not None and 1 < exit_code < SHELL_SIGNALS


def _is_by_force(exit_code: int | None) -> bool:
    """Whether a process we started was ended by a signal that none sends to itself in good order: the others only complain of that."""
    return exit_code is not None and -exit_code in (signal.SIGKILL, *NATIVE_SIGNALS)


def _root_cause(lines: Sequence[_Line], weight: Weight) -> Diagnosis | None:
    """The earliest telling line of that weight, be it a sign or the end of a traceback; before it a sign that outranks the others."""
    own = _of(lines, weight)
    outranking = next((line for line in own if line.sign and line.sign.outranks), None)
    if outranking is not None:
        return _told(outranking)
    sign_at = next((index for index, line in enumerate(own) if _is_root(line.sign)), None)
    first = _first_raised(own)
    # Of a chain the last one counts; where that has no sign and the first has, the first tells more.
    if first is not None and (sign_at is None or first[0] < sign_at or (first[0] == sign_at and _is_root(first[1].sign))):
        return _of_raised(first[1])
    return None if sign_at is None else _told(own[sign_at])


def _of(lines: Sequence[_Line], weight: Weight) -> list[_Line]:
    return [line for line in lines if line.weight is weight]


def _of_raised(line: _Line) -> Diagnosis:
    return _told(line) or replace(_diagnosis(general(Cause.EXCEPTION), line.text), host=host_in(line.source))


def _told(line: _Line) -> Diagnosis | None:
    """What a line with a sign in it says."""
    return replace(_diagnosis(line.sign, line.text), host=host_in(line.source)) if line.sign else None


def _reported(lines: Sequence[_Line]) -> Diagnosis | None:
    """What the launcher says of the rank that ended first, where that says more than the other ranks' complaints."""
    rank, code = _reported_by_torchrun(lines) or _reported_by_deepspeed(lines) or ("", RAISED)
    if code in UNTELLING_CODES:
        return None
    if code == -9:
        return _diagnosis(general(Cause.KILLED), f"{rank} was killed by signal 9")
    if -code in NATIVE_SIGNALS:
        return _diagnosis(general(Cause.NATIVE_CRASH), f"{rank} crashed: {signal.Signals(-code).name}")
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return _unexplained(general(Cause.EXIT_CODE), f"{rank} ended first, {how}, and said nothing that tells why", lines, rank)


def _reported_by_torchrun(lines: Sequence[_Line]) -> tuple[str, int] | None:
    """(which rank, its exit code)"""
    begin = next((index for index, line in enumerate(lines) if line.text.startswith(ROOT_CAUSE)), len(lines))
    # Every host's torchrun reports, and their lines may stand between one another's.
    own = [line for line in lines[begin:] if line.source == lines[begin].source][:REPORT_LINES]
    told = {match.group(1): match.group(2) for line in own if (match := REPORTED.match(line.text))}
    return (f"rank {told.get('rank', '?')}", int(told["exitcode"])) if "exitcode" in told else None


def _reported_by_deepspeed(lines: Sequence[_Line]) -> tuple[str, int] | None:
    """Likewise. The command it prints beside the code is that of its last rank, whichever ended: no rank can be told from it."""
    codes = (int(match.group(1)) for line in lines if (match := DEEPSPEED_REPORTED.search(line.text)))
    return next((("a rank", code) for code in codes), None)


def _after_effect(lines: Sequence[_Line]) -> Diagnosis | None:
    """The earliest that tells more than that a peer is gone, else the earliest."""
    signed = [line for line in lines if line.sign and line.sign.after_effect and line.weight > Weight.NOTHING]
    line = next((line for line in signed if line.sign and not line.sign.echo), signed[0] if signed else None)
    return _told(line) if line else None


def _tail(lines: Sequence[str]) -> list[_Line]:
    """The last lines, without colours, marks and what is harmless, up to a size that is quick to search; each with its sign."""
    kept, size = [], 0
    for line in reversed(lines):
        size += len(line)
        if size > LONGEST_TEXT:
            break
        kept.append(without_harmless(plain(line)))
    marked = marked_lines(kept[::-1])
    told = zip(marked, weights(marked), raised(marked), strict=True)
    return [_Line(line.source, line.text, _sign(line.text), weight, is_raised) for line, weight, is_raised in told]


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
    """Where the first traceback's exception stands, and the last one of its chain, following one rank's lines only."""
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


def _by_exit_code(exit_code: int | None, lines: Sequence[_Line]) -> Diagnosis:
    if exit_code is None:
        return _unexplained(general(Cause.UNKNOWN), "no exit code is known and the log tells nothing", lines)
    telling = of_exit_code(exit_code)
    if telling is not None and telling.cause in CODE_TELLS:
        return _diagnosis(telling, CODE_TELLS[telling.cause])
    if -exit_code in (*NATIVE_SIGNALS, signal.SIGABRT):
        return _diagnosis(general(Cause.NATIVE_CRASH), f"the process crashed: {signal.Signals(-exit_code).name}")
    how = f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
    return _unexplained(_of_chosen(exit_code), f"the launcher ended {how} and the log tells no cause", lines)


def _of_chosen(exit_code: int | None) -> Signature:
    """The entry of an exit code that does not tell the cause by itself."""
    telling = of_exit_code(exit_code)
    return telling if telling is not None and telling.cause is Cause.EXIT_CODE else general(Cause.EXIT_CODE)


def _unexplained(entry: Signature, detail: str, lines: Sequence[_Line], ended_first: str = "") -> Diagnosis:
    """With the most telling lines."""
    own = _own_words(lines)
    troubled = troubled_lines(own)
    more = f"; its most telling line: {troubled[0]}" if troubled else ""
    return _diagnosis(entry, detail + more, troubled or last_lines(own, f"[{ended_first.replace(' ', '')}]:"))


def _own_words(lines: Sequence[_Line]) -> list[MarkedLine]:
    """Lines but those that only tell of lost peers, and the launcher's own."""
    own = (line for line in lines if (line.sign is None or not line.sign.after_effect) and line.weight > Weight.NOTHING)
    own = (line for line in own if not NOISE.search(line.text) and not OF_THE_REPORT.search(line.text))
    return [MarkedLine(line.source, line.text) for line in own]


def _diagnosis(entry: Signature, detail: str, telling: tuple[str, ...] = ()) -> Diagnosis:
    detail = " ".join(detail.split())
    shortened = detail if len(detail) <= LONGEST_DETAIL else detail[: LONGEST_DETAIL - 1] + "…"
    return Diagnosis(cause=entry.cause, detail=shortened, action=entry.action, signature=entry.id, fault=entry.fault, telling=telling)
