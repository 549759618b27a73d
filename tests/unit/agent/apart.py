"""What must not happen in the tests' own process (streams, sessions, signals, `waitpid(-1)`), done in one of its own."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

from seatrial.agent import reports
from seatrial.records.command import AgentReport


def apart(act: Callable[[], Any]) -> Any:
    """What `act` gives in a child of this process, as JSON has it; its error is this one's."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told = {"gave": act()}
        except BaseException:
            told = {"error": traceback.format_exc()}
        os.write(write_end, json.dumps(told).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as source:
        told = json.loads(source.read() or b'{"error": "it ended without a word"}')
    os.waitpid(pid, 0)
    assert "error" not in told, told["error"]
    return told["gave"]


class FakeHarness:
    """Remembers reports; `words` are said once, `ended` says why it is gone. Within the block, this process's own reports go there."""

    def __init__(self, *words: str, ended: str = "") -> None:
        self.words, self.ended = list(words), ended
        self.sent: list[AgentReport] = []
        self.failures: list[str] = []
        self.is_closed = False
        self._readable, self._writable = os.pipe()

    def fileno(self) -> int:
        return -1 if self.is_closed else self._readable

    def started(self, now: float) -> None:
        """Nothing waits for it."""

    def take(self, now: float) -> list[str]:
        words, self.words = self.words, []
        return words

    def send(self, report: AgentReport) -> None:
        self.sent.append(report)

    def flush(self, patience_s: float = 0.0) -> bool:
        return True

    def gone(self, now: float) -> str:
        return self.ended

    def failed(self, why: str) -> None:
        self.failures.append(why)

    def close(self) -> None:
        self.is_closed = True
        for handle in (self._readable, self._writable):
            os.close(handle)

    def __enter__(self) -> FakeHarness:
        self._before = list(reports._to)
        reports.report_to(self)
        return self

    def __exit__(self, *raised: object) -> None:
        reports._to[:] = self._before
        if not self.is_closed:
            self.close()
