"""A node's share of a campaign without ssh: the command on any node but the first, which does what node 0 tells it.

    with Share(paths, "node1", digest=…, say=print) as share:
        return share.take_part()                   # until node 0 says that it is over: the campaign's exit code

It waits for OUT/.gate.json, calls node 0 (`launch.gate`), starts agents and answers the doctor's questions. When node 0 goes silent, or
the user stops this command, its agents are ended and nothing stays. Killed outright, it leaves them be: an agent has a line of its own
to node 0, ends its run properly, and only the next run finds nobody here.
"""

from __future__ import annotations

import math
import select
import socket
import sys
import time
from collections.abc import Callable
from types import TracebackType

from seatrial import __version__
from seatrial.errors import CampaignError, UsageError
from seatrial.launch.answering import Answering
from seatrial.launch.gate_file import PATIENCE_S, SAY_EVERY_S, read_gate
from seatrial.launch.started_agents import StartedAgents
from seatrial.line.awake_clock import AwakeClock
from seatrial.line.caller import Caller, LineError
from seatrial.line.protocol import Message
from seatrial.paths import CampaignPaths
from seatrial.units import format_duration

# How often the shared folder is asked for node 0's file.
LOOK_EVERY_S = 0.5
# Agents that ended are noticed so soon.
TURN_S = 0.5
# Once round all addresses: the file may be of a campaign that is dead, and the living one's take its place at any time.
CALL_PATIENCE_S = 0.0

Say = Callable[[str], None]


class Share:
    """One node's command, from its start to the end of the campaign."""

    def __init__(
        self,
        paths: CampaignPaths,
        node: str,
        *,
        digest: str,
        say: Say,
        address: str = "",
        patience_s: float = PATIENCE_S,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._paths, self._node, self._digest, self._say, self._address = paths, node, digest, say, address
        self._patience_s, self._monotonic, self._sleep = patience_s, monotonic, sleep
        # This command may be suspended in its terminal, and node 0 is not to blame for what was not heard meanwhile.
        self._awake = AwakeClock()
        self._agents = StartedAgents(paths.folder)
        self._answering = Answering()
        self._caller: Caller | None = None

    def __enter__(self) -> Share:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The line first: node 0 learns at once that this command has ended.
        if self._caller is not None:
            self._caller.close()
        self._answering.close()
        self._agents.end()

    def take_part(self) -> int:
        """The campaign's exit code. CampaignError where node 0 cannot be found or is lost, UsageError where it runs another plan."""
        caller = self._caller = self._called()
        self._awake.tick(math.inf)
        self._refuse_another_plan(caller.welcome)
        self._say(f"{self._node}: node 0 is there and runs the campaign; its terminal shows how it goes")
        while True:
            for message in caller.receive(self._awake.now()):
                if message["kind"] == "over":
                    return self._over(message)
                self._do(caller, message)
            self._tell(caller)
            if why := caller.lost(self._awake.now()):
                raise CampaignError(f"{self._node}: node 0 is gone, {why}; nothing is left running here, start all commands again")
            self._wait(caller)

    def _called(self) -> Caller:
        """A line to node 0, as soon as there can be one."""
        until_m, say_at_m = self._monotonic() + self._patience_s, self._monotonic()
        while True:
            trouble = f"{self._paths.gate} is not there"
            gate = read_gate(self._paths)
            if gate is not None:
                try:
                    call = gate.call(self._node, self._address)
                    return Caller.connect(call, self._hello(), self._awake.now, patience_s=CALL_PATIENCE_S)
                except LineError as error:
                    # What a dead campaign left, or one that is not up yet; another command with this rank would be turned away too.
                    trouble = str(error)
            if self._monotonic() >= until_m:
                raise CampaignError(self._nothing_of_node0(trouble))
            if self._monotonic() >= say_at_m:
                say_at_m = self._monotonic() + SAY_EVERY_S
                self._say(f"{self._node}: waiting for node 0 ({trouble}; it must run, with {self._paths.folder} as the same shared folder)")
            self._sleep(LOOK_EVERY_S)

    def _nothing_of_node0(self, trouble: str) -> str:
        return (
            f"{self._node}: nothing was heard of node 0 within {format_duration(self._patience_s)} ({trouble}): is the command on node 0 "
            f"running, is {self._paths.folder} the same folder there, is this the only command with this --node-rank?"
        )

    def _hello(self) -> Message:
        return {"host": socket.gethostname(), "python": sys.executable, "digest": self._digest, "version": __version__}

    def _refuse_another_plan(self, welcome: Message) -> None:
        """Node 0's plan is what is run: one that differs here would be another experiment than its user believes."""
        digest, version = str(welcome.get("digest")), str(welcome.get("version"))
        if version != __version__:
            raise UsageError(
                f"{self._node}: Seatrial {__version__} is installed here and {version} on node 0; install the same on all nodes"
            )
        if digest != self._digest:
            raise UsageError(
                f"{self._node}: the plan here is another than on node 0 (hash {self._digest} here, {digest} there): give the same plan "
                "file, script and --set words on every node"
            )

    def _wait(self, caller: Caller) -> None:
        """Until somebody has something to say, or a turn is over. `poll`: descriptors above 1,023 are more than `select` takes."""
        waiting = select.poll()
        waiting.register(caller, select.POLLIN)
        answers = self._answering.fileno()
        if answers is not None:
            waiting.register(answers, select.POLLIN)
        waiting.poll(TURN_S * 1000)
        self._awake.tick(TURN_S)

    def _do(self, caller: Caller, message: Message) -> None:
        if message["kind"] == "start":
            try:
                self._say(f"{self._agents.start(message)}: started here")
            except (OSError, ValueError, TypeError, KeyError) as error:
                why = f"the agent on {self._node} could not be started: {error}"
                self._say(why)
                caller.send({"kind": "trouble", "log": message.get("log"), "why": why})
        elif message["kind"] == "ask" and isinstance(message.get("n"), int) and isinstance(message.get("question"), dict):
            self._answering.ask(message["n"], message["question"])

    def _tell(self, caller: Caller) -> None:
        """What has become of agents and questions."""
        for run, log, code in self._agents.ended():
            self._say(f"{run}: over here" if not code else f"{run}: over here, the agent ended with {code}")
            if code:
                caller.send({"kind": "trouble", "log": log, "why": f"the agent on {self._node} ended with {code}"})
        for number, answer in self._answering.answers():
            caller.send({"kind": "answer", "n": number, "answer": answer})
        caller.flush()

    def _over(self, message: Message) -> int:
        code = message.get("code")
        self._say(f"{self._node}: the campaign is over (exit code {code})")
        return code if isinstance(code, int) else 1
