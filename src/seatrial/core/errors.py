"""Every error Seatrial raises on purpose, in one tree, and the exit codes its programs end with.

    SeatrialError                what happened, what was expected, what to do: one sentence each
    ├── UsageError               the user can fix it (exit 1)
    │   ├── PlanError            a plan or an override, with file, line and key
    │   └── HostfileError        a hostfile, or a selection from one, with file and line
    │       └── NoHostsError     the file is missing, cannot be read, or lists no host
    ├── RefusedError             a check refused before anything was started (exit 2)
    ├── CampaignError            the campaign folder cannot be used: busy, unreadable, gone (exit 1)
    └── LaunchError              a process could not be started at all (an outcome where it is one run's, else exit 1)
        ├── PortTakenError       the port that a run must have is in use
        ├── HostError            a host whose agent cannot be started, or does not connect
        └── StoppedError         the user asked to stop before all hosts were up

A run that fails is not an error: it is data (`records.outcome`). Only the programs (`cli`, the runbooks) turn errors into exit codes and
print them.

Not in the tree: a problem with one value of a plan is a ValueError (`PlaceholderProblem`, `SettingProblem`) until its key is known, then a
PlanError; the probe raises ValueError, since it runs in users' scripts; `assert` is for our own bugs.
"""

from __future__ import annotations

import difflib
import re
import signal
from collections.abc import Iterable
from pathlib import Path

DONE = 0
"""PASS, or done."""
WRONG_USE = 1
"""Wrong arguments or plan, a file that cannot be written, a bug of ours."""
FAILED = 2
"""FAIL, or refused before anything was started."""
INCONCLUSIVE = 3
"""Too little data to decide."""
INTERRUPTED = 130
"""Interrupted by one of STOP_SIGNALS."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_WORD = 400
CLOSE = 0.5
"""Least similarity, by difflib, of a suggested word."""


class SeatrialError(Exception):
    """Base of every deliberate error; `exit_code` is what the command line ends with."""

    exit_code = WRONG_USE


class UsageError(SeatrialError):
    """Wrong use of a command; the message names what to type instead."""


class PlanError(UsageError):
    """A plan that cannot be used; names the place (file, line, key) and the remedy."""

    def __init__(self, problem: str, *, file: Path | str | None = None, line: int | None = None, key: str | None = None):
        self.problem, self.file, self.line, self.key = problem, file, line, key
        super().__init__(_with_location(f"{key}: {problem}" if key else problem, file, line))


class HostfileError(UsageError):
    """A hostfile, or a selection of its hosts, that cannot be used; names the line and what to write."""

    def __init__(self, problem: str, *, file: Path | str | None = None, line: int | None = None):
        self.problem, self.file, self.line = problem, file, line
        super().__init__(_with_location(problem, file, line))


def _with_location(problem: str, *location: Path | str | int | None) -> str:
    return ": ".join(filter(None, (":".join(str(part) for part in location if part is not None), problem)))


class NoHostsError(HostfileError):
    """There is no hostfile, it cannot be read, or it lists no host."""


class RefusedError(SeatrialError):
    """A check found something that would make the campaign fail, or its figures wrong."""

    exit_code = FAILED


class CampaignError(SeatrialError):
    """The folder is busy, missing or not a campaign's."""


class LaunchError(SeatrialError):
    """The launcher could not be started: program missing, agent gone."""


class PortTakenError(LaunchError):
    """The port that a run must have is in use."""


class HostError(LaunchError):
    """A host whose agent could not be started or did not connect; `cause` is an entry of the registry of signatures."""

    def __init__(self, problem: str, *, host: str, cause: str):
        self.host, self.cause = host, cause
        super().__init__(problem)


class StoppedError(LaunchError):
    """The user asked to stop while hosts were being started."""


def printable(text: str) -> str:
    """A message that any terminal can show: control characters and undecodable bytes escaped, endless words cut."""
    escaped = "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)
    return re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][: LONGEST_WORD // 2]}…{word[0][-LONGEST_WORD // 4 :]}", escaped)


def nearest(word: str, known: Iterable[str], cutoff: float = CLOSE) -> str | None:
    """The known word most similar to `word`, or None when none is close."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A clause for an error message: the nearest word, or all of them when none is near."""
    known = sorted(known)
    close = nearest(word, known)
    if close:
        return f"did you mean '{close}'?"
    return f"known: {', '.join(known)}" if known else "none is known here"
