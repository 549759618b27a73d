"""`python -P -m seatrial.agent.answers`: answer the doctor's questions about this host, one JSON line each, until standard input ends.

    {"ready": true, "host": "node1", "pid": 4711}                                                     said first
    {"n": 1, "ask": "all", "parts": {"facts": {"ask": "facts"}, "port": {"ask": "listen", "token": "…"}}}     asked
    {"n": 1, "parts": {"facts": {"host": "node1", …}, "port": {"port": 29650}}, "received_t": …, "sent_t": …}   answered

Every question has a time limit, and what takes longer is answered by `{"trouble": "no answer within 5 s"}`; the parts of `all` are
worked on at once. Sockets and files that questions leave open are closed and removed by the question `close`, and at the end. Who has
no pipe to speak through, such as a node that was started by hand, calls `answer` in its own process.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from seatrial.agent.answering import facts, lookups, sockets, speed, ssh_trial, trials
from seatrial.agent.answering.at_once import at_once
from seatrial.files import json_object
from seatrial.machine.handles import make_room
from seatrial.machine.patience import is_stuck

# Longer than any sound host takes; a disk or a name server that hangs is told of after it.
LIMIT_S = 5.0
# What has its own limits inside; the sum of those and a little.
LIMITS_S = {"gpus": 11.0, "facts": 11.0, "ssh": ssh_trial.LIMIT_S + 1.0, "reach": sockets.REACH_LIMIT_S + 2.0}
# Nobody asks any more, though the pipe stands: a link that was cut is noticed by no one else.
IDLE_S = 120.0
LARGEST_QUESTION_BYTES = 4 << 20
# A thousand hosts call at once, and are called.
MOST_HANDLES = 8192

Told = dict[str, Any]


class Answerer:
    """Answers questions, and holds what they leave open."""

    def __init__(self) -> None:
        self._listeners, self._trials = sockets.Listeners(speed.serve), trials.Trials()
        self._questions: dict[str, Callable[[Mapping[str, Any]], Told]] = {
            "clock": lambda question: {},
            "facts": facts.facts,
            "gpus": facts.gpus,
            "names": lookups.names,
            "programs": lookups.programs,
            "paths": lookups.paths,
            "space": lookups.space,
            "ssh": ssh_trial.ssh,
            "listen": self._listeners.listen,
            "reach": sockets.reach,
            "speed": speed.speed,
            "put": self._trials.put,
            "lock": self._trials.lock,
            "look": trials.look,
            "is_held": trials.is_held,
            "close": self._close,
        }

    def answer(self, question: Mapping[str, Any]) -> Told:
        """Never raises and never waits without end; `n` is the question's own."""
        received_t = time.time()
        parts = question.get("parts")
        if question.get("ask") == "all" and isinstance(parts, dict):
            told: Told = {"parts": self._answered({str(name): part for name, part in parts.items() if isinstance(part, dict)})}
        else:
            told = self._answered({"": question})[""]
        return {"n": question.get("n"), **told, "received_t": received_t, "sent_t": time.time()}

    def close(self) -> None:
        """Give back every port, file and lock."""
        self._listeners.close()
        self._trials.close()

    def _answered(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Told]:
        return at_once(
            {name: (functools.partial(self._do, asked), LIMITS_S.get(str(asked.get("ask")), LIMIT_S)) for name, asked in questions.items()}
        )

    def _do(self, question: Mapping[str, Any]) -> Told:
        kind = str(question.get("ask"))
        known = self._questions.get(kind)
        return known(question) if known else {"trouble": f"this Seatrial does not know the question {kind[:40]!r}"}

    def _close(self, question: Mapping[str, Any]) -> Told:
        self.close()
        return {}


@functools.cache
def _answerer() -> Answerer:
    return Answerer()


def answer(question: Mapping[str, Any]) -> Told:
    """The answer of this process's own answerer; the question `close` ends what earlier ones left open."""
    return _answerer().answer(question)


def main(questions: int, answers: int) -> int:
    """Read from one descriptor and write to the other until the first ends, or nobody asks for IDLE_S."""
    answerer = Answerer()
    try:
        _say(answers, {"ready": True, "host": socket.gethostname(), "pid": os.getpid()})
        pending = b""
        while select.select([questions], [], [], IDLE_S)[0]:
            data = os.read(questions, 1 << 16)
            *lines, pending = (pending + data).split(b"\n")
            for asked in filter(None, map(json_object, lines)):
                _say(answers, answerer.answer(asked))
            if not data or len(pending) > LARGEST_QUESTION_BYTES:
                break
    except BrokenPipeError:
        # Whoever asked is gone.
        pass
    finally:
        answerer.close()
    return 0


def _say(answers: int, told: Told) -> None:
    line = json.dumps(told).encode() + b"\n"
    while line:
        line = line[os.write(answers, line) :]


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _run() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    make_room(MOST_HANDLES)
    code = main(sys.stdin.fileno(), sys.stdout.fileno())
    if is_stuck():
        # The usual way out would wait for locks that a hung call holds.
        os._exit(code)
    return code


if __name__ == "__main__":
    raise SystemExit(_run())
