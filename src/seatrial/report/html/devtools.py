"""A browser without a window, asked by its DevTools protocol over two pipes.

In: the browser's command. Out: answers to questions such as `Page.printToPDF`, until a deadline. The browser reads its questions from
descriptor 3 and answers on 4, each message JSON and a zero byte: no port is opened that others on this machine could use. It runs in a
process group of its own, with a profile folder of its own, and both are gone when the block ends, whatever happened in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seatrial.errors import LaunchError

READS_FROM, WRITES_TO = 3, 4
# Above the two, so that neither is overwritten before it has been copied.
ABOVE_BOTH = 10
CHUNK_BYTES = 1 << 20
LONGEST_COMPLAINT = 300
# What a fresh profile would ask or fetch, and what small containers do not have.
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-breakpad", "--mute-audio",
    "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND", "--password-store=basic", "--hide-scrollbars",
)  # fmt: skip


class NoAnswerError(LaunchError):
    """The browser ended, kept silent or refused."""


def browser_command(program: str, profile: Path, *, as_root: bool) -> list[str]:
    """The words that start it. Its sandbox does not work for root, and only then goes without."""
    return [program, *FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if as_root else []), "about:blank"]


@contextlib.contextmanager
def opened(program: str, patience_s: float) -> Iterator[DevTools]:
    """The browser, started and ready for questions for so many seconds."""
    folder = Path(tempfile.mkdtemp(prefix="seatrial-browser-"))
    try:
        complaints = folder / "stderr.txt"
        argv = browser_command(program, folder / "profile", as_root=os.geteuid() == 0)
        with _pipes() as (theirs, ours):
            pid = _spawn(argv, theirs, complaints)
            for descriptor in theirs:
                os.close(descriptor)
            try:
                yield DevTools(program, ours, complaints, time.monotonic() + patience_s)
            finally:
                _end(pid)
    finally:
        # Its last processes may still be writing into the profile.
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _pipes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """What the browser reads and writes, and what we do: ours are closed here, theirs by the caller once the browser has them."""
    pipes = [os.pipe(), os.pipe()]
    theirs = tuple(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, ABOVE_BOTH) for descriptor in (pipes[0][0], pipes[1][1]))
    for descriptor in (pipes[0][0], pipes[1][1]):
        os.close(descriptor)
    ours = (pipes[1][0], pipes[0][1])
    try:
        yield (theirs[0], theirs[1]), ours
    finally:
        for descriptor in ours:
            os.close(descriptor)


def _spawn(argv: Sequence[str], theirs: tuple[int, int], complaints: Path) -> int:
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    silent = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    kept = (os.POSIX_SPAWN_OPEN, 2, str(complaints), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    copied = [(os.POSIX_SPAWN_DUP2, theirs[0], READS_FROM), (os.POSIX_SPAWN_DUP2, theirs[1], WRITES_TO)]
    try:
        # A group of its own: a signal for us is not for the browser, and its many processes can be ended together.
        return os.posix_spawn(argv[0], list(argv), os.environ, file_actions=[nothing, silent, kept, *copied], setpgroup=0)
    except OSError as error:
        for descriptor in theirs:
            os.close(descriptor)
        raise NoAnswerError(f"{argv[0]} could not be started ({error.strerror})") from error


def _end(pid: int) -> None:
    """End it with all of its group: its work is done, or will never be."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


class DevTools:
    """One conversation."""

    def __init__(self, program: str, ours: tuple[int, int], complaints: Path, deadline_m: float) -> None:
        self._program, self._complaints = program, complaints
        self.deadline_m = deadline_m
        self._from, self._to = ours
        self._buffer = bytearray()
        self._number = 0
        self._events: list[dict[str, Any]] = []
        for descriptor in ours:
            os.set_blocking(descriptor, False)

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The answer to one question."""
        self._number += 1
        question = {"id": self._number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._write(json.dumps(question).encode() + b"\0")
        while True:
            message = self._read(method)
            if message.get("id") == self._number:
                if "error" in message:
                    raise NoAnswerError(f"{self._program} refused {method}: {_cut(str(message['error']))}")
                answer = message.get("result")
                return answer if isinstance(answer, dict) else {}
            self._events.append(message)

    def forget_events(self) -> None:
        """What has happened so far is not what is waited for from now on."""
        self._events.clear()

    def wait_for(self, event: str) -> None:
        """Wait until that has happened; at once where it has since events were last forgotten."""
        while not any(message.get("method") == event for message in self._events):
            self._events.append(self._read(event))

    def _write(self, text: bytes) -> None:
        while text:
            self._wait(self._to, selectors.EVENT_WRITE, "the question")
            try:
                text = text[os.write(self._to, text) :]
            except OSError as error:
                raise self._gone() from error

    def _read(self, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            self._wait(self._from, selectors.EVENT_READ, what)
            came = os.read(self._from, CHUNK_BYTES)
            if not came:
                raise self._gone()
            self._buffer += came
        line, _, rest = bytes(self._buffer).partition(b"\0")
        self._buffer = bytearray(rest)
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        return message if isinstance(message, dict) else {}

    def _wait(self, descriptor: int, for_what: int, what: str) -> None:
        left_s = self.deadline_m - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, for_what)
            if left_s <= 0 or not selector.select(left_s):
                raise NoAnswerError(f"{self._program} gave no answer to {what} in time and was ended{self._said()}")

    def _gone(self) -> NoAnswerError:
        return NoAnswerError(f"{self._program} ended before its work was done{self._said()}")

    def _said(self) -> str:
        """The last thing it complained of that is no chatter about a desktop that is not there."""
        with contextlib.suppress(OSError):
            lines = self._complaints.read_text(encoding="utf-8", errors="replace").splitlines()
            telling = [line for line in lines if line.strip() and "dbus" not in line]
            return f"; it said: {_cut(telling[-1])}" if telling else ""
        return ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_COMPLAINT else f"{text[:LONGEST_COMPLAINT]}…"
