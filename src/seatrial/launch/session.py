"""A session with one answerer: a process with three pipes that are never waited for; `asking` looks after many of them at once.

In: the words that start it, and questions. Out: `messages` as they come, and `trouble`, in words, once it is no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.files import json_object
from seatrial.shell import KILLED_S, is_over_within

# What answers without end, or without ends of lines, is no answerer of ours.
MOST_BYTES = 8 << 20
KEPT_COMPLAINT_BYTES = 2000
LAST_WORDS_S = 0.5

Message = dict[str, Any]


class Session:
    """One answerer: its process, what it was told and said that is still on the way, and why it is no more, if so."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None) -> None:
        self.ready, self.trouble, self.messages = False, "", list[Message]()
        self._pending, self._complaint, self._asked, self._unsent = b"", b"", 0, b""
        self.began_m = self.sent_m = time.monotonic()
        self.sent_t = time.time()
        self.heard_m = self.ready_m = self.began_m
        self.process: subprocess.Popen[bytes] | None = None
        try:
            # In a group of its own: a Ctrl-C at the terminal is for the harness, which closes the sessions.
            self.process = subprocess.Popen(
                argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, bufsize=0
            )
        except OSError as error:
            self.trouble = f"{argv[0]}: {error.strerror}"
            return
        for pipe in self.pipes:
            os.set_blocking(pipe, False)

    @property
    def pipes(self) -> tuple[int, ...]:
        """Input, output and complaints of the process, as numbers."""
        process = self.process
        if process is None or process.stdin is None or process.stdout is None or process.stderr is None:
            return ()
        return (process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno())

    def put(self, question: Mapping[str, Any]) -> None:
        self._asked += 1
        self._unsent += json.dumps({**question, "n": self._asked}).encode() + b"\n"
        self.write()

    @property
    def is_sending(self) -> bool:
        """Whether a part of the question waits for the pipe to take it."""
        return bool(self._unsent) and not self.trouble

    def write(self) -> None:
        """As much of the question as the pipe takes now."""
        # The last part counts for the clock: it is what the answerer waits for.
        self.sent_m, self.sent_t = time.monotonic(), time.time()
        try:
            self._unsent = self._unsent[os.write(self.pipes[0], self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or "the pipe to it is broken")

    def answer(self) -> Message | None:
        """The answer to the last question, once it is there; late ones to earlier questions are passed over."""
        return next((message for message in self.messages if message.get("n") == self._asked), None)

    def read(self) -> None:
        """Take what is there; notice the end."""
        said, complained = (self._taken(pipe) for pipe in self.pipes[1:])
        self._complaint = (self._complaint + (complained or b""))[-KEPT_COMPLAINT_BYTES:]
        *lines, self._pending = (self._pending + (said or b"")).split(b"\n")
        # A login script that prints is no reason to stop: what is no JSON object is passed over.
        for message in filter(None, map(json_object, lines)):
            self.heard_m = time.monotonic()
            if message.get("ready") is True and not self.ready:
                self.ready, self.ready_m = True, self.heard_m
            self.messages = [*self.messages[-4:], message]
        if said == b"" or len(self._pending) > MOST_BYTES:
            self._end()

    def _taken(self, pipe: int) -> bytes | None:
        """None while nothing is there, b"" at the end."""
        taken = b""
        try:
            while part := os.read(pipe, 1 << 16):
                taken += part
                if len(taken) > MOST_BYTES:
                    return taken
        except BlockingIOError:
            return taken or None
        except OSError:
            return taken
        return taken

    def _end(self, why: str = "") -> None:
        if self.trouble or self.process is None:
            return
        # Its output has ended, so it is about to end itself; its code says more than the silence.
        is_over_within(self.process, LAST_WORDS_S)
        complained = self._taken(self.pipes[2]) or b""
        lines = (self._complaint + complained).decode("utf-8", errors="replace").strip().splitlines()
        # The last line is what ended it: warnings, banners and tracebacks stand before it.
        text = " ".join(lines[-1].split()) if lines else ""
        code = self.process.returncode
        self.trouble = why or text or (f"it ended with {code}" if code is not None else "it closed its output")
        if text and code is not None and not why:
            self.trouble = f"{text} (ended with {code})"

    def close(self) -> None:
        """Close its input; who gave no answer is not waited for."""
        process = self.process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        if self.trouble:
            self.signal(signal.SIGTERM)

    def wait(self, patience_s: float) -> None:
        if self.process is None:
            return
        if not is_over_within(self.process, patience_s):
            self.signal(signal.SIGKILL)
            is_over_within(self.process, KILLED_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def signal(self, number: int) -> None:
        """The whole group: ssh may have started a proxy."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
