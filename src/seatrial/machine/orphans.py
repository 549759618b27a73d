"""Finding and ending what a run left when its agent itself was killed: by the harness that lost it (on another host by what it starts
there, `seatrial.agent --end`), by a later one, or by the agent of a later attempt on the same host.

Every process of an attempt has SEATRIAL_RUN_DIR=<attempt folder> in the environment it was started with; children of such a
process, and of the pids the agent reported, belong to the attempt too, whatever they did to their own environment. A harness that
adopts orphans also becomes the parent of all of them when the agent dies. Shared memory they leave is removed. What a person starts
again with an attempt's command.sh has <attempt folder>/by-hand there, and is never touched. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from seatrial.files import read_json
from seatrial.machine.proc_files import PROC, ZOMBIE, all_pids, command_words, environment_words, own_pids, read_line
from seatrial.machine.running_agents import AGENT
from seatrial.machine.shared_memory import left_behind
from seatrial.paths import ATTEMPT_NAME, BY_HAND, AttemptPaths
from seatrial.records.events import ENV_RUN_DIR

PATIENCE_S = 5.0
LOOK_EVERY_S = 0.1
# How long after the last sign of life of an attempt shared memory may still be its own.
SIGN_OF_LIFE_S = 60.0
_MARKER = f"{ENV_RUN_DIR}=".encode()

Whose = Callable[[bytes], bool]
"""Whether a path that a process names makes it one of those that are looked for."""


def find_orphans(
    folder: Path,
    known: Mapping[int, int],
    *,
    roots: Collection[int] = (),
    among: Iterable[int] | None = None,
    proc: Path = PROC,
) -> list[int]:
    """Living processes of the attempt in `folder`: `known` maps reported pids to their start ticks, `roots` are its own for certain."""
    return _find(of_attempt(folder), known, roots=roots, among=among, proc=proc)


def _find(
    whose: Whose, known: Mapping[int, int], *, roots: Collection[int] = (), among: Iterable[int] | None = None, proc: Path = PROC
) -> list[int]:
    """Nobody finds himself, or those above him."""
    lines = ((pid, read_line(str(proc), pid)) for pid in (own_pids(proc) if among is None else among))
    living = {pid: line for pid, line in lines if line is not None and line.state != ZOMBIE}
    found = {pid for pid, ticks in known.items() if pid in living and living[pid].started_ticks == ticks}
    found |= {pid for pid in living if _says_so(whose, pid, proc)}
    above = _line_of_descent(proc)
    family = _with_children({*found, *roots} - above, {pid: line.parent for pid, line in living.items()})
    return sorted((family & living.keys()) - above)


def kill_orphans(
    folder: Path,
    known: Mapping[int, int],
    adopted: Callable[[], set[int]] = set,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> set[int]:
    """KILL them until none is left or patience ends, then remove their shared memory; the pids that were killed."""
    killed = _chased(_Chase(of_attempt(folder), known, adopted), sleep, monotonic)
    _remove_shared_memory(folder)
    return killed


def kill_leftovers(
    campaign: Path,
    attempt: Path,
    go_on: Callable[[], bool] = lambda: True,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> set[int]:
    """The same for what every attempt of a campaign but this one has left on this host; its shared memory stays, nobody knows it.

    Only for who knows that this attempt is the one that lives now; `go_on` is asked before each look whether that is still so.
    """
    return _chased(_Chase(of_other_attempts(campaign, attempt), {}, set), sleep, monotonic, go_on)


def find_leftovers(campaign: Path, attempt: Path) -> list[int]:
    """What `kill_leftovers` would end."""
    return _find(of_other_attempts(campaign, attempt), {})


def of_attempt(folder: Path) -> Whose:
    """What lies in an attempt's folder is its own, but for what a person started by hand."""
    return _below(re.escape(os.fsencode(folder)))


def of_other_attempts(campaign: Path, attempt: Path) -> Whose:
    """A campaign that lies in the folder of another is none of its attempts."""
    all_of_them, this_one = _below(re.escape(os.fsencode(campaign)) + b"/[^/]+/" + ATTEMPT_NAME.encode()), of_attempt(attempt)
    return lambda path: all_of_them(path) and not this_one(path)


def _below(pattern: bytes) -> Whose:
    compiled = re.compile(pattern + rb"(?!/" + BY_HAND.encode() + rb"(?:/|\Z))(?:/.*)?", re.DOTALL)
    return lambda path: compiled.fullmatch(path) is not None


def _chased(
    chase: _Chase, sleep: Callable[[float], None], monotonic: Callable[[], float], go_on: Callable[[], bool] = lambda: True
) -> set[int]:
    until_m = monotonic() + PATIENCE_S
    while go_on() and chase.look() and monotonic() < until_m:
        # What forks anew whenever it is killed is caught only by looking faster than it forks.
        again_at_m = monotonic() + LOOK_EVERY_S
        while chase.look_at_new() and monotonic() < again_at_m:
            continue
        sleep(LOOK_EVERY_S)
    return chase.killed


class _Chase:
    """Looks for processes of somebody's again and again, and kills them."""

    def __init__(self, whose: Whose, known: Mapping[int, int], adopted: Callable[[], set[int]]) -> None:
        self._whose, self._known, self._adopted = whose, known, adopted
        self._seen: set[int] = set()
        self.killed: set[int] = set()

    def look(self) -> bool:
        """Kill whatever can be found; whether there was anything."""
        self._seen = own_pids()
        return self._kill_among(self._seen)

    def look_at_new(self) -> bool:
        """The same for what came since, which takes a tenth of the time; whether anything came, the run's or not, alive or not."""
        there = all_pids()
        new, self._seen = there - self._seen, there
        return self._kill_among(new) or bool(new)

    def _kill_among(self, pids: set[int]) -> bool:
        # As long as one of the adopted forks, another is there, if only as a zombie.
        adopted = self._adopted()
        found = {pid for pid in adopted if not _is_collected(pid)}
        _kill(found)
        found.update(_find(self._whose, self._known, roots=adopted | self.killed, among=pids))
        _kill(found)
        self.killed |= found
        return bool(adopted or found)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _says_so(whose: Whose, pid: int, proc: Path) -> bool:
    """By its environment; or it is an agent that outlived its harness, since somebody had suspended it."""
    if any(word.startswith(_MARKER) and whose(word[len(_MARKER) :]) for word in environment_words(pid, proc)):
        return True
    words = command_words(pid, proc)
    return AGENT.encode() in words and any(word.endswith(b".json") and whose(word) for word in words)


def _line_of_descent(proc: Path) -> set[int]:
    """This process, its parent, and on."""
    above: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in above:
        above.add(pid)
        line = read_line(str(proc), pid)
        pid = line.parent if line is not None else 0
    return above


def _is_collected(pid: int) -> bool:
    """Whether an adopted process is over; its exit code is taken, so that no zombie stays."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _remove_shared_memory(folder: Path) -> None:
    """Only on the host of an order, and only what is not younger than the last sign of life of who carried it out."""
    attempt = AttemptPaths(folder)
    with contextlib.suppress(OSError):
        for path in (attempt.agent_order, *attempt.nodes.glob(f"*/{attempt.agent_order.name}")):
            order = read_json(path)
            if isinstance(order, dict) and order.get("host") == socket.gethostname() and isinstance(order.get("shared_memory"), list):
                _remove_new(order["shared_memory"], {folder, path.parent})


def _remove_new(before: Collection[str], folders: Iterable[Path]) -> None:
    """`folders` are written to as long as the run lives."""
    newest_t = max((path.lstat().st_mtime for folder in folders for path in folder.iterdir()), default=0.0) + SIGN_OF_LIFE_S
    for path in left_behind(before, newest_t=newest_t):
        path.unlink(missing_ok=True)


def _with_children(found: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    family = set(found)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family
