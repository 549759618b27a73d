"""This host's answers to the doctor's questions, given by a child process: a folder that hangs, hangs the child and not the line.

    with Answering() as answering:
        answering.ask(1, {"ask": "facts"})
        … wait for answering.fileno() … answering.answers() → [(1, {…})]

The child is `python -P -m seatrial.agent.answers`: one JSON question a line in, one JSON answer a line out, with the question's number
`n`. It starts at the first question, keeps what it was asked to hold (a port to listen at, a lock), and ends by itself when nobody asks
for a while; a later question starts it anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from seatrial.files import json_object
from seatrial.launch.own_programs import answers_words
from seatrial.shell import PIPE_BYTES, end_within

# For an interpreter to end once its input has, and for the kernel to end what was killed.
LEAVE_PATIENCE_S = 2.0
Answer = dict[str, Any]
NO_ANSWER = "no_answer"
"""In place of an answer: why there is none. `trouble` within an answer is the answerer's own word."""


class Answering:
    """The child, as long as it is needed."""

    def __init__(self, program: Sequence[str] = answers_words()) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: list[int] = []
        self._pending = b""
        self._trouble = ""

    def ask(self, number: int, question: Mapping[str, Any]) -> None:
        """Pass it on; the answer comes later, under this number."""
        if not self._asked and self._process is not None and self._process.poll() is not None:
            self.close()
        self._asked.append(number)
        try:
            process = self._process = self._process or self._started()
            assert process.stdin is not None
            process.stdin.write(json.dumps({**question, "n": number}).encode() + b"\n")
        except OSError as error:
            self._trouble = f"questions cannot be answered on this host: {error.strerror or error}"

    def fileno(self) -> int | None:
        """What to wait for; None where nothing can come."""
        return self._process.stdout.fileno() if self._asked and self._process and self._process.stdout else None

    def answers(self) -> list[tuple[int, Answer]]:
        """What has come, without waiting. A child that ended leaves its trouble as the answer to all that was still open."""
        found: list[tuple[int, Answer]] = []
        while not self._trouble and (data := self._read()) is not None:
            if not data:
                self._trouble = "what answers questions on this host has ended by itself"
            *lines, self._pending = (self._pending + data).split(b"\n")
            found += [(answer["n"], answer) for line in lines if (answer := json_object(line)) and answer.get("n") in self._asked]
        if self._trouble:
            found += [(number, {NO_ANSWER: self._trouble}) for number in self._asked if number not in dict(found)]
            self.close()
        self._asked = [number for number in self._asked if number not in dict(found)]
        return found

    def close(self) -> None:
        """End the child: at the end of its input it leaves by itself, what hangs is killed."""
        process, self._process = self._process, None
        self._pending, self._trouble = b"", ""
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        end_within(process, LEAVE_PATIENCE_S, LEAVE_PATIENCE_S)
        process.stdout.close()

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _read(self) -> bytes | None:
        """b"" at the end of the child, None when there is nothing now."""
        if self._process is None or self._process.stdout is None:
            return None
        try:
            return os.read(self._process.stdout.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return None
