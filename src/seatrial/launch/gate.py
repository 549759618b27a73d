"""Node 0's side of a campaign without ssh: one command was started on every node, and this is where they meet.

    with Gate(paths, nodes=2, address="10.0.0.1", port=29500, plan=…, digest=…, say=…, how_to_start=…) as gate:
        gate.gather(is_stopped)                    # until the commands of all other nodes (`launch.share`) have called
        gate.start("node1", argv, env, log)        # tells one to start an agent, which then has a line of its own
        gate.over(exit_code)                       # ends them all with that exit code

The port is taken before anything else is done; OUT/.gate.json says where it is. A command that ended may be started again: it calls
anew and the next run, which waits for it a while, has it. What runs on its node meanwhile is its agent's, which does not need it.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from seatrial import __version__
from seatrial.errors import HostError, LaunchError, PortTakenError, RefusedError, SeatrialError
from seatrial.launch.gate_file import PATIENCE_S, SAY_EVERY_S, node_names, own_addresses, remove_gate, write_gate
from seatrial.launch.gate_questions import GateQuestions
from seatrial.line.protocol import Message, new_token
from seatrial.line.switchboard import Switchboard
from seatrial.paths import CampaignPaths
from seatrial.records.exit_codes import INTERRUPTED, WRONG_USE
from seatrial.records.reply import Reply
from seatrial.units import format_duration
from seatrial.wording import named

# Ctrl-C is noticed so soon.
TURN_S = 0.25
# Longer than any question takes on the slowest host.
ANSWER_PATIENCE_S = 60.0
# Time to see that a command has ended, and to start it again.
RETURN_PATIENCE_S = 120.0
# For a word on its way, and a command that is just busy.
LEAVE_PATIENCE_S = 5.0
# Enough of what somebody else may have told.
DIGITS_SHOWN = 40
# As the registry of signatures has it.
NOT_STARTED = "node_not_started"

Say = Callable[[str], None]


class Gate:
    """The commands of all nodes but this one, node 0's."""

    def __init__(
        self,
        paths: CampaignPaths,
        *,
        nodes: int,
        address: str,
        port: int,
        plan: str,
        digest: str,
        say: Say,
        how_to_start: Callable[[int], str],
        patience_s: float = PATIENCE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths, self._plan, self._digest, self._say, self._how_to_start = paths, plan, digest, say, how_to_start
        self._patience_s, self._monotonic = patience_s, monotonic
        self.nodes = node_names(nodes)
        self.master_addr = address
        """Where the user says that node 0 is reached: ranks meet there too, unless the plan names another address."""
        self.addresses = own_addresses(address)
        """All of node 0's, that one first."""
        self._port, self._token = port, new_token()
        self._hellos: dict[str, Message] = {}
        self._lost: dict[str, str] = {}
        self._given_up: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._logs: dict[str, str] = {}
        self._is_over = False
        self._questions = GateQuestions(self.nodes[0], monotonic)

    def __enter__(self) -> Gate:
        server = _listening(self._port)
        self._board = Switchboard(self._token, self.nodes[1:], welcome=self._welcome, listening=server, may_return=True)
        self._board.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.over(_exit_code(error))
        finally:
            remove_gate(self._paths, self._token)
            self._board.close()
            self._questions.close()

    @property
    def port(self) -> int:
        return self._board.port

    def gather(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when all have called. KeyboardInterrupt when `is_stopped` first, RefusedError when patience ends."""
        write_gate(self._paths, self.addresses, self.port, self._token, self._plan)
        until_m = self._monotonic() + self._patience_s
        say_at_m = self._monotonic()
        while missing := self.missing():
            if is_stopped():
                self._say(f"stopped while waiting for {named(missing)}; nothing was run")
                raise KeyboardInterrupt
            if self._board.failed:
                raise LaunchError(f"{named(missing)} cannot call any more: {self._board.failed}")
            if self._monotonic() >= until_m:
                raise RefusedError(self._nobody_came(missing))
            if self._monotonic() >= say_at_m:
                say_at_m = self._monotonic() + SAY_EVERY_S
                self._say(f"waiting for {named(missing)} (start there: {self._how(missing[0])})")
            self._hear(TURN_S)

    def wait_for_return(self, is_stopped: Callable[[], bool] = lambda: False, patience_s: float = RETURN_PATIENCE_S) -> None:
        """Before a run: give the user a while to start a command again that has ended. Once for each end, or every run would wait."""
        until_m = self._monotonic() + patience_s
        while (awaited := {*self.lost()} - self._given_up) and not self._board.failed and self._monotonic() < until_m and not is_stopped():
            self._hear(TURN_S)
        self._given_up |= awaited

    def missing(self) -> list[str]:
        """Nodes whose command has not called, or has ended."""
        self._hear()
        return [node for node in self.nodes[1:] if node not in self._hellos]

    def lost(self) -> dict[str, str]:
        """Nodes whose command called and has ended since → why that is known."""
        self._hear()
        return dict(self._lost)

    def host_of(self, node: str) -> str:
        """What the node's host calls itself; empty where its command never called."""
        return socket.gethostname() if node == self.nodes[0] else str(self._hellos.get(node, {}).get("host", ""))

    def python_of(self, node: str) -> str:
        """The interpreter that the node's command runs in; empty for this node and where it never called."""
        return str(self._hellos.get(node, {}).get("python", ""))

    def start(self, node: str, argv: Sequence[str], env: Mapping[str, str], log: Path | str) -> None:
        """Have an agent started there, `env` added to that node's own variables; LaunchError where nobody is there to do it."""
        if node in self.missing():
            why = self._lost.get(node, "it never called")
            problem = f"the command on {node} has ended ({why}): start it again there: {self._how(node)}"
            raise HostError(problem, host=node, cause=NOT_STARTED)
        self._troubles.pop(node, None)
        self._logs[node] = str(log)
        self._board.send(node, {"kind": "start", "argv": list(argv), "env": dict(env), "log": str(log)})

    def trouble(self, node: str) -> str:
        """Why the agent that was started there last can no longer call, in words; empty while it may."""
        self._hear()
        ended = f"the command on {node} has ended ({self._lost[node]})" if node in self._lost else ""
        return self._troubles.get(node, ended)

    def ask(self, questions: Mapping[str, Mapping[str, Any]], patience_s: float = ANSWER_PATIENCE_S) -> dict[str, Reply]:
        """Every asked node's reply, this one's too, as `records.reply.Ask` has it: the doctor's way without ssh."""
        asked = self._questions
        asked.begin(questions, self._board.send)
        while asked.is_awaited(questions, self._hellos) and (left_s := asked.left_s(patience_s)) > 0:
            self._hear(left_s, asked.fileno())
        return asked.replies(questions, self._hellos, patience_s)

    def over(self, code: int) -> None:
        """End every command with this exit code, and wait a moment until they have heard."""
        if self._is_over:
            return
        self._is_over = True
        self._board.send_all({"kind": "over", "code": code})
        until_m = self._monotonic() + LEAVE_PATIENCE_S
        while self._hellos and self._monotonic() < until_m:
            self._hear(TURN_S)

    def _welcome(self, node: str) -> dict[str, Any]:
        return {"plan": self._plan, "digest": self._digest, "version": __version__}

    def _hear(self, timeout_s: float = 0.0, beside: int | None = None) -> None:
        """What the nodes say, waited for; or until the file `beside` can be read."""
        for node, message in self._board.wait(timeout_s, beside) if timeout_s else self._board.poll():
            self._take(node, message)

    def _take(self, node: str, message: Message) -> None:
        kind = message["kind"]
        if kind == "hello":
            self._let_in(node, message)
        elif kind == "lost":
            self._let_go(node, str(message.get("why")))
        elif kind == "trouble" and message.get("log") == self._logs.get(node):
            # Of the agent of an earlier run, which ends while the next one starts, nobody wants to know any more.
            self._troubles[node] = str(message.get("why"))
        elif kind == "answer":
            self._questions.take(node, message.get("n"), message.get("answer"), self._board.offset(node))

    def _let_in(self, node: str, hello: Message) -> None:
        """One that has another plan, or is another version, ends by itself: here it is only said and not counted."""
        told = (hello.get("digest"), hello.get("version"))
        if told != (self._digest, __version__):
            plan, version = (str(word)[:DIGITS_SHOWN] for word in told)
            self._say(
                f"{node} ({hello.get('host')}) is not let in: it has plan {plan} and Seatrial {version}, "
                f"here it is plan {self._digest} and Seatrial {__version__}"
            )
            return
        self._hellos[node] = hello
        self._lost.pop(node, None)
        self._given_up.discard(node)
        self._say(f"{node} is here ({hello.get('host')})")

    def _let_go(self, node: str, why: str) -> None:
        if self._hellos.pop(node, None) is None or self._is_over:
            return
        self._lost[node] = why
        self._say(f"the command on {node} has ended ({why}); the next run waits for it a while, start it again: {self._how(node)}")

    def _nobody_came(self, missing: Sequence[str]) -> str:
        return (
            f"{named(missing)} did not call within {format_duration(self._patience_s)}: start there {self._how(missing[0])}, see that "
            f"{self._paths.folder} is the same folder there, and that port {self.port} of {self.master_addr} can be reached from there"
        )

    def _how(self, node: str) -> str:
        return self._how_to_start(self.nodes.index(node))


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("", port), backlog=256)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise LaunchError(f"--master-port {port} cannot be listened at: {error.strerror}") from error
        raise PortTakenError(
            f"--master-port {port} is in use on this node, or not ours to take; end what holds it, or choose another on all nodes"
        ) from error


def _exit_code(error: BaseException | None) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return error.exit_code if isinstance(error, SeatrialError) else WRONG_USE
