"""Stacks of every rank of an attempt.

In: attempt-N/stacks, with what ranks dumped at the stack signal (rank<r>.txt) and what py-spy saw (pid<P>.txt), in whatever state. Out: one
`RankStack` a process, ranks first in order, each with its main thread first and the innermost frame first.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.core.files import open_file, read_json_lines, tail_lines
from seatrial.core.log_lines import split_rank
from seatrial.core.paths import AttemptPaths
from seatrial.records.events import START_EVENT_WITHIN_LINES
from seatrial.records.stored import HostFolder, host_folders, read_nodes

MAX_TEXT_BYTES = 8 * 1024 * 1024
BY_SIGNAL, BY_PY_SPY, BY_ABORT = "signal", "py-spy", "abort"
ABORTED = "Fatal Python error: Aborted"
LOG_LINES = 2_000
MAIN_THREAD = "MainThread"

_RANK_FILE = re.compile(r"rank(?P<rank>\d{1,9})\.txt")
_PROCESS_FILE = re.compile(r"pid(?P<pid>\d{1,9})\.txt")
# Python's own: `Thread 0x00007f… [name] (most recent call first):`, then `  File "x.py", line 3 in f`.
_OWN_THREAD = re.compile(r"(?P<current>Current thread|Thread) (?P<id>0x[0-9a-fA-F]+)(?: \[(?P<name>.*)\])? \(most recent call first\):")
_OWN_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>.+)')
# py-spy's: `Thread 41 (idle): "MainThread"`, then `    f (/home/me/x.py:3)`.
_SPY_THREAD = re.compile(r'Thread (?P<id>\S+) \((?P<state>[^)]*)\)(?:: "(?P<name>.*)")?')
_SPY_FRAME = re.compile(r"    (?P<function>.+?) \((?P<file>[/<].*?)(?::(?P<line>\d{1,9}))?\)")
# C++ names have brackets too; a file without a folder is in the last ones.
_SPY_FRAME_WITHOUT_FOLDER = re.compile(r"    (?P<function>.+) \((?P<file>[^()]*?)(?::(?P<line>\d{1,9}))?\)")
_HEADING = re.compile(r"# (?:(?P<worker>worker of )?rank (?P<rank>\d{1,9}) )?pid (?P<pid>\d{1,9})")
_STATE = re.compile(r"# state (?P<letter>[A-Za-z]):")

# Frames of Python, of installed packages and of the probe are between a user's line and what it waits for.
_LIBRARY_FILE = re.compile(
    r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib(?:64)?[/\\]python3|[/\\]seatrial[/\\]probe[/\\]|^<frozen "
    r"|[/\\]torch[/\\](?:_\w+|nn|distributed|autograd|optim|utils|cuda|multiprocessing|fx|amp|jit|functional\.py|serialization\.py)"
)
_COLLECTIVE = re.compile(r"[/\\]torch[/\\]distributed[/\\]|[/\\]deepspeed[/\\]comm[/\\]")
_NATIVE = re.compile(r"\.(?:c|cc|cpp|cxx|h|hh|hpp|cu|cuh|rs|S|asm)$|\.so(?:\.[\d.]+)?$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One call; `line` is None for native code without debug information."""

    file: str
    line: int | None
    function: str


@dataclass(frozen=True, kw_only=True)
class Thread:
    """One thread of a process, innermost frame first."""

    name: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankStack:
    """All threads of one process, the main one first."""

    rank: int | None
    """None for a launcher, or a data worker, which has `of_rank`."""
    of_rank: int | None = None
    pid: int | None
    source: str
    """`signal`, `py-spy`, or `abort` for a trace in launcher.log."""
    threads: tuple[Thread, ...]
    state: str = ""
    """`T` for a stopped process (SIGSTOP), `D` for one in uninterruptible sleep; else empty."""
    host: str = ""
    """The host whose agent took them; empty on one host, and for a rank's own dump."""


def read_stacks(attempt: AttemptPaths) -> tuple[RankStack, ...]:
    folders = host_folders(attempt, read_nodes(attempt)[0])
    found = [stack for folder in folders for stack in _stacks_of_host(attempt, folder)]
    known = {stack.rank for stack in found}
    aborted = [stack for folder in folders for stack in _aborted_ranks(folder)]
    found += [stack for stack in aborted if stack.threads and (stack.rank is None or stack.rank not in known)]
    # A rank's own dump comes before py-spy's.
    return tuple(sorted(found, key=lambda stack: (stack.rank is None, stack.rank or 0, stack.source != BY_SIGNAL, stack.pid or 0)))


def _stacks_of_host(attempt: AttemptPaths, folder: HostFolder) -> list[RankStack]:
    """Stacks in one host's folder; a rank's own dump is in the attempt's folder on any host."""
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        paths = sorted(folder.paths.stacks.iterdir())
    read = (_read_stack_file(attempt, path) for path in paths)
    return [replace(stack, host="" if stack.source == BY_SIGNAL else folder.name) for stack in read if stack is not None and stack.threads]


def main_frame(stack: RankStack) -> str:
    """The main thread's frame, as `train.py:41 in step`: the innermost in the user's code, else the innermost of all."""
    frames = stack.threads[0].frames if stack.threads else ()
    users = (one for one in frames if one.line is not None and not _LIBRARY_FILE.search(one.file) and not _NATIVE.search(one.file))
    frame = next(users, None) or next(iter(frames), None)
    if frame is None:
        return ""
    name = re.split(r"[/\\]", frame.file)[-1]
    return f"{name if frame.line is None else f'{name}:{frame.line}'} in {frame.function}"


def is_in_collective(stack: RankStack) -> bool:
    """Whether its main thread is in a collective; the others are then not waiting for this rank."""
    frames = stack.threads[0].frames if stack.threads else ()
    return any(_COLLECTIVE.search(frame.file) for frame in frames)


def _read_stack_file(attempt: AttemptPaths, path: Path) -> RankStack | None:
    if named := _RANK_FILE.fullmatch(path.name):
        rank = int(named["rank"])
        return RankStack(rank=rank, pid=_pid_of_rank(attempt, rank), source=BY_SIGNAL, threads=_python_threads(_lines(path)))
    if named := _PROCESS_FILE.fullmatch(path.name):
        return _parse_py_spy(int(named["pid"]), _lines(path))
    return None


def _aborted_ranks(folder: HostFolder) -> list[RankStack]:
    """Ranks whose trace is in the log, since ABRT was the only way to get it."""
    lines: dict[int | None, list[str]] = {}
    for line in tail_lines(folder.paths.launcher_log, LOG_LINES, MAX_TEXT_BYTES):
        rank, text = split_rank(line)
        lines.setdefault(rank, []).append(text)
    return [
        RankStack(rank=rank, pid=None, source=BY_ABORT, threads=_python_threads(own[own.index(ABORTED) + 1 :]), host=folder.name)
        for rank, own in lines.items()
        if ABORTED in own
    ]


def _lines(path: Path) -> list[str]:
    """Lines of the file, or of the end of a long one, where the newest stacks are."""
    try:
        with open_file(path) as source:
            size = source.seek(0, 2)
            source.seek(max(0, size - MAX_TEXT_BYTES))
            return source.read().decode("utf-8", errors="replace").split("\n")
    except OSError:
        return []


def _python_threads(lines: list[str]) -> tuple[Thread, ...]:
    """Threads of the newest dump: Python lists the newest thread first and the main one last."""
    threads: dict[str, tuple[str, list[Frame]]] = {}
    current, is_cut = "", False
    at: list[Frame] = []
    for before, line in itertools.pairwise(["", *lines]):
        if head := _OWN_THREAD.fullmatch(line.rstrip()):
            # There is a blank line between two threads and none between two dumps.
            if head["id"] in threads or before.strip():
                threads, current, is_cut = {}, "", False
            at = []
            threads[head["id"]] = (head["name"] or "", at)
            current = head["id"] if head["current"].startswith("Current") else current
        elif frame := _OWN_FRAME.fullmatch(line.rstrip()):
            at.append(Frame(file=frame["file"], line=int(frame["line"]) if frame["line"].isdigit() else None, function=frame["function"]))
        elif line.startswith("..."):
            is_cut = True
    if not threads:
        return ()
    # Python stops after a hundred threads; then the one that took the signal, usually the main one, is the best guess.
    main = current if is_cut and current in threads else next(reversed(threads))
    ordered = [main, *(identity for identity in threads if identity != main)]
    return tuple(Thread(name=threads[identity][0], frames=tuple(threads[identity][1])) for identity in ordered)


def _parse_py_spy(pid: int, lines: list[str]) -> RankStack:
    heading = next((match for line in lines[:1] if (match := _HEADING.match(line))), None)
    state = next((match["letter"] for line in lines[:3] if (match := _STATE.match(line))), "")
    rank = int(heading["rank"]) if heading and heading["rank"] else None
    is_worker = bool(heading and heading["worker"])
    threads = _py_spy_threads(lines)
    # The id of the first thread is the pid; its name can be changed.
    threads.sort(key=lambda found: (found[0] != str(pid), found[1].name != MAIN_THREAD))
    return RankStack(
        rank=None if is_worker else rank,
        of_rank=rank if is_worker else None,
        pid=pid,
        source=BY_PY_SPY,
        threads=tuple(thread for _, thread in threads),
        state=state,
    )


def _py_spy_threads(lines: list[str]) -> list[tuple[str, Thread]]:
    """(number, thread), in file order."""
    heads: list[tuple[str, str, list[Frame]]] = []
    for line in lines:
        if head := _SPY_THREAD.match(line):
            heads.append((head["id"], head["name"] or "", []))
        elif heads and (frame := _SPY_FRAME.fullmatch(line.rstrip()) or _SPY_FRAME_WITHOUT_FOLDER.fullmatch(line.rstrip())):
            line_number = int(frame["line"]) if frame["line"] else None
            heads[-1][2].append(Frame(file=frame["file"], line=line_number, function=frame["function"]))
    return [(number, Thread(name=name, frames=tuple(frames))) for number, name, frames in heads]


def _pid_of_rank(attempt: AttemptPaths, rank: int) -> int | None:
    """The pid in the rank's start event; None without one."""
    with contextlib.suppress(OSError):
        for event in itertools.islice(read_json_lines(attempt.events(rank)), START_EVENT_WITHIN_LINES):
            if event.get("kind") == "start" and type(event.get("pid")) is int:
                return int(event["pid"])
    return None
