"""The doctor's queries to many hosts at once: an answering process on each, by ssh or as a plain child.

    with HostSessions(answer_commands(hosts, head)) as sessions:
        replies = sessions.ask({"node1": {"ask": "facts"}, "node2": {"ask": "facts"}}, 5.0)       # host → Reply

The answering process is `python -P -m seatrial.agent.query_handler`: one JSON query per line in, one JSON answer per line out, with the
query's number `n`. One thread and one selector serve all hosts, in the time of the slowest. A host that has not answered in time gets a
reply with that error, and is not waited for again. At the end every session is closed; the processes end when their input does.
`AnswerProcess` is the same child behind a control connection, which numbers the queries itself and may send the next before an answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from seatrial.core.control_connection.protocol import ClockOffset
from seatrial.core.errors import LaunchError
from seatrial.core.files import json_object
from seatrial.core.hostfile import HostSpec
from seatrial.core.launcher_options import ssh_command
from seatrial.core.linux import raise_fd_limit
from seatrial.core.shell import KILL_TIMEOUT_S, PIPE_BYTES, wait_for_exit, wait_or_kill
from seatrial.launch.agents import query_handler_argv
from seatrial.machine.network import THIS_MACHINE, is_this_host
from seatrial.records.launch import Reply

# As for agents: ssh gives up after ConnectTimeout, and starting Python from a cold file server takes seconds more.
START_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 2.0
# For an interpreter to exit after its input has ended, and for a killed process to be gone.
EXIT_TIMEOUT_S = 2.0
LATE_START = "the session did not start within {:g} s"
LATE_ANSWER = "no answer within {:g} s"
NO_ANSWER = "no_answer"
"""Key for the reason why there is no answer; `trouble` within an answer is the answering process's own."""
# A process that prints more, or a longer line, is not a query handler.
MAX_BYTES = 8 << 20
KEPT_STDERR_BYTES = 2000
# For the exit code of a process whose output has ended.
EXIT_CODE_S = 0.5
PIPES_PER_HOST = 3
# Logs, libraries, and pipe ends that are open only while a process is started.
OTHER_DESCRIPTORS = 128

Message = dict[str, Any]


def own_host(hosts: Sequence[HostSpec], is_here: Callable[[str], bool] = is_this_host) -> str:
    """The host that this process runs on; THIS_MACHINE where it is not in the list."""
    return next((host.name for host in hosts if is_here(host.name)), THIS_MACHINE)


def answer_commands(
    hosts: Sequence[HostSpec], head: str, *, python: str = "", ssh_args: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Host → the argv of its answering process; `head`, this machine, is always among them and needs no ssh.

    `python` is the interpreter of every host, by default this one's path; `ssh_args` are the user's (`transports.choice.user_ssh_args`);
    `env` is the environment of this process, of which PYTHONPATH is passed on.
    """
    answering = query_handler_argv(python)
    # A machine without ranks may lack the interpreter of the hosts.
    own = {head: answering if any(host.name == head for host in hosts) else query_handler_argv()}
    path = (os.environ if env is None else env).get("PYTHONPATH")
    remote = ("env", f"PYTHONPATH={path}", *answering) if path else answering
    return own | {host.name: tuple(ssh_command(host.name, remote, ssh_args)) for host in hosts if host.name != head}


class HostSession:
    """One answering process with three non-blocking pipes; `error` is why it ended, empty while it lives."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None) -> None:
        self.ready, self.error, self.messages = False, "", list[Message]()
        self._pending, self._stderr, self._number, self._unsent = b"", b"", 0, b""
        self.began_m = self.sent_m = time.monotonic()
        self.sent_t = time.time()
        self.heard_m = self.ready_m = self.began_m
        self.process: subprocess.Popen[bytes] | None = None
        try:
            # In its own session: Ctrl-C in the terminal is for the harness, which closes the sessions.
            self.process = subprocess.Popen(
                argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, bufsize=0
            )
        except OSError as error:
            self.error = f"{argv[0]}: {error.strerror}"
            return
        for pipe in self.pipes:
            os.set_blocking(pipe, False)

    @property
    def pipes(self) -> tuple[int, ...]:
        """File descriptors of stdin, stdout and stderr."""
        process = self.process
        if process is None or process.stdin is None or process.stdout is None or process.stderr is None:
            return ()
        return (process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno())

    def send(self, query: Mapping[str, Any]) -> None:
        self._number += 1
        self._unsent += json.dumps({**query, "n": self._number}).encode() + b"\n"
        self.write()

    @property
    def is_sending(self) -> bool:
        """Whether a part of the query is still to be written."""
        return bool(self._unsent) and not self.error

    def write(self) -> None:
        """Write as much of the query as the pipe takes now."""
        # The time of the last part counts for the clock offset, since the other end waits for it.
        self.sent_m, self.sent_t = time.monotonic(), time.time()
        try:
            self._unsent = self._unsent[os.write(self.pipes[0], self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or "the pipe to it is broken")

    def answer(self) -> Message | None:
        """The answer to the last query, once it is there; late ones to earlier queries are skipped."""
        return next((message for message in self.messages if message.get("n") == self._number), None)

    def read(self) -> None:
        """Read what is available; notice the end."""
        output, errors = (self._read_pipe(pipe) for pipe in self.pipes[1:])
        self._stderr = (self._stderr + (errors or b""))[-KEPT_STDERR_BYTES:]
        *lines, self._pending = (self._pending + (output or b"")).split(b"\n")
        # A login script may print text: only JSON objects count.
        for message in filter(None, map(json_object, lines)):
            self.heard_m = time.monotonic()
            if message.get("ready") is True and not self.ready:
                self.ready, self.ready_m = True, self.heard_m
            self.messages = [*self.messages[-4:], message]
        if output == b"" or len(self._pending) > MAX_BYTES:
            self._end()

    def _read_pipe(self, pipe: int) -> bytes | None:
        """None while nothing is available, b"" at the end."""
        data = b""
        try:
            while part := os.read(pipe, 1 << 16):
                data += part
                if len(data) > MAX_BYTES:
                    return data
        except BlockingIOError:
            return data or None
        except OSError:
            return data
        return data

    def _end(self, why: str = "") -> None:
        if self.error or self.process is None:
            return
        # Its output has ended, so its exit code follows in a moment.
        wait_for_exit(self.process, EXIT_CODE_S)
        errors = self._read_pipe(self.pipes[2]) or b""
        lines = (self._stderr + errors).decode("utf-8", errors="replace").strip().splitlines()
        # The last line is the error: warnings, banners and tracebacks come before it.
        text = " ".join(lines[-1].split()) if lines else ""
        code = self.process.returncode
        self.error = why or text or (f"it ended with {code}" if code is not None else "it closed its output")
        if text and code is not None and not why:
            self.error = f"{text} (ended with {code})"

    def close(self) -> None:
        """Close its input; end it where it has failed."""
        process = self.process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        if self.error:
            self._signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> None:
        if self.process is None:
            return
        if not wait_for_exit(self.process, timeout_s):
            self._signal(signal.SIGKILL)
            wait_for_exit(self.process, KILL_TIMEOUT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _signal(self, number: int) -> None:
        """Signal the whole process group: ssh may have started a proxy."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


class HostSessions:
    """An answering process on each host while the block lasts."""

    def __init__(
        self, commands: Mapping[str, Sequence[str]], env: Mapping[str, str] | None = None, start_s: float = START_TIMEOUT_S
    ) -> None:
        self._commands, self._env, self._start_s = commands, env, start_s
        self._sessions: dict[str, HostSession] = {}

    def __enter__(self) -> HostSessions:
        _raise_fd_limit_for(len(self._commands))
        try:
            for name, argv in self._commands.items():
                self._sessions[name] = HostSession(argv, self._env)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ask(self, queries: Mapping[str, Mapping[str, Any]], timeout_s: float) -> dict[str, Reply]:
        sessions = {name: self._sessions[name] for name in queries}
        starting = {name: session for name, session in sessions.items() if not session.ready}
        self._wait_for(starting.values(), lambda session: session.ready, self._start_s, LATE_START)
        for name, session in sessions.items():
            if not session.error:
                session.send(queries[name])
        self._wait_for(sessions.values(), lambda session: session.answer() is not None, timeout_s, LATE_ANSWER)
        return {name: _reply(session, started=name in starting) for name, session in sessions.items()}

    def close(self) -> None:
        """End every session and its processes."""
        for session in self._sessions.values():
            session.close()
        until_m = time.monotonic() + CLOSE_TIMEOUT_S
        for session in self._sessions.values():
            session.wait(until_m - time.monotonic())
        self._sessions.clear()

    def _wait_for(self, sessions: Iterable[HostSession], done: Callable[[HostSession], bool], timeout_s: float, late: str) -> None:
        """Wait until each is done or has failed; after the timeout the others count as failed."""
        waiting = dict.fromkeys(session for session in sessions if not session.error and not done(session))
        until_m = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for session in waiting:
                selector.register(session.pipes[1], selectors.EVENT_READ, session)
                if session.is_sending:
                    selector.register(session.pipes[0], selectors.EVENT_WRITE, session)
            while waiting and (left_s := until_m - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    _transfer(selector, key)
                    if key.data in waiting and (key.data.error or done(key.data)):
                        del waiting[key.data]
        for session in waiting:
            session.error = late.format(timeout_s)


def _transfer(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Read or write what one pipe is ready for; unregister it once its session is over or has sent its query."""
    session: HostSession = key.data
    is_input = key.fd == session.pipes[0]
    if not session.error:
        session.write() if is_input else session.read()
    if session.error or (is_input and not session.is_sending):
        selector.unregister(key.fd)


def _raise_fd_limit_for(num_hosts: int) -> None:
    wanted = PIPES_PER_HOST * num_hosts + OTHER_DESCRIPTORS
    allowed = raise_fd_limit(wanted)
    if allowed < wanted:
        problem = f"{num_hosts} hosts at once need {wanted} open files, and the limit is {allowed}"
        raise LaunchError(f"{problem}: raise the hard limit (`ulimit -Hn`, LimitNOFILE, /etc/security/limits.conf), or use fewer hosts")


def _reply(session: HostSession, started: bool) -> Reply:
    took_s = session.ready_m - session.began_m if started else session.heard_m - session.sent_m
    answer = session.answer()
    if session.error or answer is None:
        return Reply(trouble=session.error or "no answer", took_s=took_s)
    return Reply(answer=answer, took_s=took_s, clock=_clock_offset(session, answer))


def _clock_offset(session: HostSession, answer: Message) -> ClockOffset | None:
    """How far its wall clock is ahead; the round trip excludes the other end's own time."""
    received_t, sent_t = answer.get("received_t"), answer.get("sent_t")
    if not isinstance(received_t, (int, float)) or not isinstance(sent_t, (int, float)):
        return None
    round_trip_s = max(0.0, session.heard_m - session.sent_m - (sent_t - received_t))
    return ClockOffset(offset_s=received_t - (session.sent_t + round_trip_s / 2), round_trip_s=round_trip_s)


class AnswerProcess:
    """This host's answers, given by a child process as long as it is needed: a folder that hangs, hangs the child and not the connection.

        answers = AnswerProcess()
        answers.ask(1, {"ask": "facts"})
        … wait for answers.fileno() … answers.answers() → [(1, {…})]

    The child starts at the first query, holds what queries opened (a listening port, a lock), and ends by itself when no query
    comes for a while; a later query starts another.
    """

    def __init__(self, program: Sequence[str] = query_handler_argv()) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._open_numbers: list[int] = []
        self._pending = b""
        self._error = ""

    def ask(self, number: int, query: Mapping[str, Any]) -> None:
        """Send it; the answer comes later, under this number."""
        if not self._open_numbers and self._process is not None and self._process.poll() is not None:
            self.close()
        self._open_numbers.append(number)
        try:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            process.stdin.write(json.dumps({**query, "n": number}).encode() + b"\n")
        except OSError as error:
            self._error = f"queries cannot be answered on this host: {error.strerror or error}"

    def fileno(self) -> int | None:
        """What to wait for; None where nothing can come."""
        return self._process.stdout.fileno() if self._open_numbers and self._process and self._process.stdout else None

    def answers(self) -> list[tuple[int, Message]]:
        """Answers so far, without waiting. A child that ended leaves its error as the answer to all open queries."""
        found: list[tuple[int, Message]] = []
        while not self._error and (data := self._read()) is not None:
            if not data:
                self._error = "the answering process on this host has ended by itself"
            *lines, self._pending = (self._pending + data).split(b"\n")
            found += [(answer["n"], answer) for line in lines if (answer := json_object(line)) and answer.get("n") in self._open_numbers]
        if self._error:
            found += [(number, {NO_ANSWER: self._error}) for number in self._open_numbers if number not in dict(found)]
            self.close()
        self._open_numbers = [number for number in self._open_numbers if number not in dict(found)]
        return found

    def close(self) -> None:
        """End the child: at the end of its input it ends by itself, what hangs is killed."""
        process, self._process = self._process, None
        self._pending, self._error = b"", ""
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        wait_or_kill(process, EXIT_TIMEOUT_S, EXIT_TIMEOUT_S)
        process.stdout.close()

    def _start(self) -> subprocess.Popen[bytes]:
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
