"""Every error Seatrial raises on purpose, in one tree.

    SeatrialError                what happened, what was expected, what to do: one sentence each
    ├── UsageError               the user can mend it (exit 1)
    │   ├── PlanError            a plan or an override, with file, line and key
    │   └── HostfileError        a hostfile, or what is chosen from one, with file and line
    │       └── NoHostsError     the file is missing, cannot be read, or names no host
    ├── RefusedError             a check refused before anything was started (exit 2)
    ├── CampaignError            the campaign folder cannot be used: busy, unreadable, gone (exit 1)
    └── LaunchError              a process could not be started at all (an outcome where it is one run's, else exit 1)
        ├── PortTakenError       the port that a run must have is another's
        ├── HostError            a host whose agent cannot be started, or does not call
        └── StoppedError         the user asked to stop before all hosts were up

A run that fails is not an error: it is data (`records.outcome`). Only the programs (`cli/program.py`, those of a runbook) turn
errors into exit codes (`records.exit_codes`) and print them.

Not in the tree: what is wrong with one value of a plan is a ValueError (`PlaceholderProblem`, `SettingProblem`) until the key is known, and
a PlanError from there on; the probe raises ValueError, as it lives in scripts of others and brings nothing of this along; `assert` is for
what only a fault of ours can break.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from seatrial.records import exit_codes

LONGEST_WORD = 400
CLOSE = 0.5
"""How alike, by difflib, a word must be to be what was meant."""


class SeatrialError(Exception):
    """Base of every deliberate error; `exit_code` is what the command line ends with."""

    exit_code = exit_codes.WRONG_USE


class UsageError(SeatrialError):
    """Wrong use of a command; the message names what to type instead."""


class PlanError(UsageError):
    """A plan that cannot be used; says where (file, line, key) and what would be right."""

    def __init__(self, problem: str, *, file: Path | str | None = None, line: int | None = None, key: str | None = None):
        self.problem, self.file, self.line, self.key = problem, file, line, key
        super().__init__(self._text())

    def _text(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        what = f"{self.key}: {self.problem}" if self.key else self.problem
        return f"{where}: {what}" if where else what


class HostfileError(UsageError):
    """A hostfile, or a choice of its hosts, that cannot be used; says where and what to write."""

    def __init__(self, problem: str, *, file: Path | str | None = None, line: int | None = None):
        self.problem, self.file, self.line = problem, file, line
        where = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(f"{where}: {problem}" if where else problem)


class NoHostsError(HostfileError):
    """There is no hostfile, it cannot be read, or no host stands in it."""


class RefusedError(SeatrialError):
    """A check found something that would make the campaign fail or lie later."""

    exit_code = exit_codes.FAILED


class CampaignError(SeatrialError):
    """The campaign folder is busy, missing or not what it should be."""


class LaunchError(SeatrialError):
    """The launcher could not be started: program missing, agent gone."""


class PortTakenError(LaunchError):
    """The port that a run must have is held by somebody else."""


class HostError(LaunchError):
    """A host whose agent could not be started or did not call; `cause` names an entry of the registry of signatures."""

    def __init__(self, problem: str, *, host: str, cause: str):
        self.host, self.cause = host, cause
        super().__init__(problem)


class StoppedError(LaunchError):
    """The user asked to stop while hosts were being started."""


def printable(text: str) -> str:
    """A message that any terminal can show: control characters and bytes that are no text are spelled out, endless words cut."""
    spelled = "".join(letter if letter.isprintable() or letter == "\n" else _spelled(letter) for letter in text)
    return re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][: LONGEST_WORD // 2]}…{word[0][-LONGEST_WORD // 4 :]}", spelled)


def _spelled(letter: str) -> str:
    return ascii(letter)[1:-1]


def nearest(word: str, known: Iterable[str], likeness: float = CLOSE) -> str | None:
    """The known word most like `word`, or None when none is close."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A clause for an error message: the nearest word, or all of them when none is near."""
    known = sorted(known)
    close = nearest(word, known)
    if close:
        return f"did you mean '{close}'?"
    return f"known: {', '.join(known)}" if known else "none is known here"
