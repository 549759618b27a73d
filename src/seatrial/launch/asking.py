"""Sessions with an answerer on every host, all at once: questions go out to all, answers are waited for together.

    with Sessions(ask_commands(hosts, head)) as sessions:
        replies = sessions.ask({"node1": {"ask": "facts"}, "node2": {"ask": "facts"}}, 5.0)       # host → Reply

One thread and one `poll` for all of them: the time is the slowest host's, not the sum. A question that is longer than a pipe takes at once
goes in parts. A host that has not answered within its patience is a trouble in words, and is not waited for again. At the end every
session is closed; answerers end when their input does.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from seatrial.errors import LaunchError
from seatrial.launch.session import Message, Session
from seatrial.machine.handles import make_room
from seatrial.records.line import ClockOffset
from seatrial.records.reply import Reply

# As long as agents have to call: ssh gives up after ConnectTimeout, the user's own or ours, and a Python on a cold file server takes
# seconds more.
START_S = 60.0
CLOSE_S = 2.0
LATE_START = "the session has not begun within {:g} s"
LATE_ANSWER = "no answer within {:g} s"
PIPES_A_HOST = 3
# Logs, libraries, and the ends of pipes that are open only while a process is started.
OTHER_HANDLES = 128


class Sessions:
    """An answerer on each host while the block lasts. `start_s` is the patience with a session's beginning."""

    def __init__(self, commands: Mapping[str, Sequence[str]], env: Mapping[str, str] | None = None, start_s: float = START_S) -> None:
        self._commands, self._env, self._start_s = commands, env, start_s
        self._sessions: dict[str, Session] = {}

    def __enter__(self) -> Sessions:
        _make_room(len(self._commands))
        try:
            for name, argv in self._commands.items():
                self._sessions[name] = Session(argv, self._env)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ask(self, questions: Mapping[str, Mapping[str, Any]], patience_s: float) -> dict[str, Reply]:
        """The reply of every host that is asked."""
        asked = {name: self._sessions[name] for name in questions}
        starting = {name: session for name, session in asked.items() if not session.ready}
        self._gather(starting.values(), lambda session: session.ready, self._start_s, LATE_START)
        for name, session in asked.items():
            if not session.trouble:
                session.put(questions[name])
        self._gather(asked.values(), lambda session: session.answer() is not None, patience_s, LATE_ANSWER)
        return {name: _reply(session, began=name in starting) for name, session in asked.items()}

    def close(self) -> None:
        """End every session; nothing of them is left when this returns."""
        for session in self._sessions.values():
            session.close()
        until_m = time.monotonic() + CLOSE_S
        for session in self._sessions.values():
            session.wait(until_m - time.monotonic())
        self._sessions.clear()

    def _gather(self, sessions: Iterable[Session], done: Callable[[Session], bool], patience_s: float, late: str) -> None:
        """Until each is done or in trouble; those that are neither when the patience is over are in trouble from then on."""
        waiting = dict.fromkeys(session for session in sessions if not session.trouble and not done(session))
        until_m = time.monotonic() + patience_s
        with selectors.DefaultSelector() as selector:
            for session in waiting:
                selector.register(session.pipes[1], selectors.EVENT_READ, session)
                if session.is_sending:
                    selector.register(session.pipes[0], selectors.EVENT_WRITE, session)
            while waiting and (left_s := until_m - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    _go_on(selector, key)
                    if key.data in waiting and (key.data.trouble or done(key.data)):
                        del waiting[key.data]
        for session in waiting:
            session.trouble = late.format(patience_s)


def _go_on(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Read or write what one pipe is ready for; a session that is over, or has all of its question, is no longer looked at for it."""
    session: Session = key.data
    is_input = key.fd == session.pipes[0]
    if not session.trouble:
        session.write() if is_input else session.read()
    if session.trouble or (is_input and not session.is_sending):
        selector.unregister(key.fd)


def _make_room(num_hosts: int) -> None:
    wanted = PIPES_A_HOST * num_hosts + OTHER_HANDLES
    allowed = make_room(wanted)
    if allowed < wanted:
        problem = f"to ask {num_hosts} hosts at once takes {wanted} open files, and this process may have {allowed}"
        raise LaunchError(f"{problem}: raise its hard limit (`ulimit -Hn`, LimitNOFILE, /etc/security/limits.conf), or take fewer hosts")


def _reply(session: Session, began: bool) -> Reply:
    took_s = session.ready_m - session.began_m if began else session.heard_m - session.sent_m
    answer = session.answer()
    if session.trouble or answer is None:
        return Reply(trouble=session.trouble or "no answer", took_s=took_s)
    return Reply(told=answer, took_s=took_s, clock=_clock(session, answer))


def _clock(session: Session, answer: Message) -> ClockOffset | None:
    """How far its wall clock is ahead: the time on the way is what the answerer did not need itself."""
    received_t, sent_t = answer.get("received_t"), answer.get("sent_t")
    if not isinstance(received_t, (int, float)) or not isinstance(sent_t, (int, float)):
        return None
    round_trip_s = max(0.0, session.heard_m - session.sent_m - (sent_t - received_t))
    return ClockOffset(offset_s=received_t - (session.sent_t + round_trip_s / 2), round_trip_s=round_trip_s)
