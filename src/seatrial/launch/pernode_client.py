"""The command on every node but node 0 of a campaign without ssh: it starts agents for node 0.

    with PernodeClient(paths, "node1", digest=…, report=print) as client:
        return client.run()                        # until node 0 ends the campaign: its exit code

It waits for OUT/.gate.json, connects to node 0 (`launch.pernode_server`), starts agents and answers the doctor's queries. When node 0
goes silent, or the user stops this command, its agents are ended. If it is killed, they go on: an agent has its own connection to node 0
and ends its run properly; only the next run cannot start here.
"""

from __future__ import annotations

import math
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from seatrial.core.control_connection.protocol import ControlClient, ControlConnectionError, Message, VersionMismatchError
from seatrial.core.errors import CampaignError, UsageError
from seatrial.core.paths import CampaignPaths
from seatrial.core.private_files import NotPrivateError
from seatrial.core.shell import KILL_TIMEOUT_S, wait_for_exit
from seatrial.core.text import format_duration
from seatrial.core.timeouts import SuspendAwareClock
from seatrial.launch.host_queries import AnswerProcess
from seatrial.launch.pernode_server import JOIN_TIMEOUT_S, REMIND_EVERY_S, ReportLine, read_server_file
from seatrial.launch.transports import AGENT_EXIT_TIMEOUT_S
from seatrial.machine.network import own_address_test
from seatrial.machine.orphans import kill_orphans

# How often the shared folder is checked for node 0's file.
RETRY_S = 0.5
# How soon the end of an agent is noticed.
POLL_S = 0.5
# The agent of the last run exits a moment after node 0 knows that the run is over.
LAST_AGENT_S = 2.0
# Each address once: the file may be of a dead campaign, and a live one may replace it at any time.
CONNECT_TIMEOUT_S = 0.0


class StartedAgents:
    """The agents that this command has started for node 0, as its children; usually one is alive.

    Each has its own session, so that Ctrl-C in the terminal reaches the command alone, which then ends them: TERM, a grace period, KILL.
    The output goes to the log that node 0 named, in the attempt's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[str, Path, subprocess.Popen[bytes]]] = []

    def start(self, message: dict[str, Any]) -> str:
        """Start the agent that node 0 requested; returns the name of its run. OSError where that fails, others for an invalid message."""
        argv, log = [str(argument) for argument in message["argv"]], Path(message["log"])
        with open(log, "ab") as output:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        run = self._run_of(log)
        self._running.append((run, log, process))
        return run

    def ended(self) -> list[tuple[str, str, int]]:
        """(run, log, exit code) of agents that have ended since the last call."""
        over = [(run, str(log), process.returncode) for run, log, process in self._running if process.poll() is not None]
        self._running = [one for one in self._running if one[2].returncode is None]
        return over

    def wait(self, timeout_s: float) -> None:
        """Wait until all have exited, at most that long."""
        until_m = time.monotonic() + timeout_s
        for _, _, process in self._running:
            wait_for_exit(process, until_m - time.monotonic())

    def end(self) -> None:
        """End all live agents, and what they leave."""
        for _, _, process in self._running:
            process.terminate()
        until_m = time.monotonic() + AGENT_EXIT_TIMEOUT_S
        for _, log, process in self._running:
            if not wait_for_exit(process, until_m - time.monotonic()):
                process.kill()
                kill_orphans(log.parents[2] if len(log.parents) > 2 else log.parent, {})
                # A process in an uninterruptible call ends later, by itself.
                wait_for_exit(process, KILL_TIMEOUT_S)
        self._running = []

    def _run_of(self, log: Path) -> str:
        """OUT/<run>/attempt-1/nodes/node1/start.log → the run; the path itself for a log elsewhere."""
        try:
            return log.relative_to(self._folder).parts[0]
        except (ValueError, IndexError):
            return str(log)


class PernodeClient:
    """One node's command, from its start to the end of the campaign."""

    def __init__(
        self,
        paths: CampaignPaths,
        node: str,
        *,
        digest: str,
        report: ReportLine,
        address: str = "",
        timeout_s: float = JOIN_TIMEOUT_S,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        answers: AnswerProcess | None = None,
    ) -> None:
        self._paths, self._node, self._digest, self._report, self._address = paths, node, digest, report, address
        self._timeout_s, self._monotonic, self._sleep = timeout_s, monotonic, sleep
        # This command may be suspended in its terminal, which must not count as silence of node 0.
        self._clock = SuspendAwareClock()
        self._agents = StartedAgents(paths.folder)
        self._answers = answers or AnswerProcess()
        self._connection: ControlClient | None = None

    def __enter__(self) -> PernodeClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The connection first: node 0 learns at once that this command has ended.
        if self._connection is not None:
            self._connection.close()
        self._answers.close()
        self._agents.end()

    def run(self) -> int:
        """The campaign's exit code. CampaignError where node 0 is not found or lost, UsageError where it runs another plan."""
        connection = self._connection = self._connect()
        self._clock.tick(math.inf)
        self._check_same_plan(connection.first_message)
        self._report(f"{self._node}: connected to node 0, which runs the campaign; see its terminal for progress")
        while True:
            for message in connection.receive(self._clock.now()):
                if message["kind"] == "over":
                    return self._finish(message)
                self._handle(connection, message)
            self._send_news(connection)
            if why := connection.lost(self._clock.now()):
                raise CampaignError(f"{self._node}: lost node 0 ({why}). Nothing runs here. Start all commands again")
            self._wait(connection)

    def _connect(self) -> ControlClient:
        until_m, remind_at_m = self._monotonic() + self._timeout_s, self._monotonic()
        hello = {"host": socket.gethostname(), "python": sys.executable, "digest": self._digest}
        while True:
            problem = f"{self._paths.pernode_server_file} does not exist"
            try:
                if (server := read_server_file(self._paths)) is not None:
                    endpoint = server.endpoint(self._node, self._address)
                    is_own = own_address_test(endpoint.network_stack)
                    return ControlClient.connect(endpoint, hello, self._clock.now, CONNECT_TIMEOUT_S, is_own)
            except VersionMismatchError as error:
                raise UsageError(str(error)) from error
            except NotPrivateError as error:
                raise CampaignError(f"{self._node}: {error}") from error
            except ControlConnectionError as error:
                # The file of a dead campaign, or one that is not ready yet, or another command has this rank.
                problem = str(error)
            if self._monotonic() >= until_m:
                raise CampaignError(self._timeout_text(problem))
            if self._monotonic() >= remind_at_m:
                remind_at_m = self._monotonic() + REMIND_EVERY_S
                self._report(
                    f"{self._node}: waiting for node 0 ({problem}; it must run, with {self._paths.folder} as the same shared folder)"
                )
            self._sleep(RETRY_S)

    def _timeout_text(self, problem: str) -> str:
        return (
            f"{self._node}: no connection to node 0 within {format_duration(self._timeout_s)} ({problem}): check that the command on node "
            f"0 runs, that {self._paths.folder} is the same folder there, and that no other command has this --node-rank"
        )

    def _check_same_plan(self, first_message: Message) -> None:
        """UsageError unless this command has node 0's plan, which is the one that runs."""
        digest = str(first_message.get("digest"))
        if digest != self._digest:
            raise UsageError(
                f"{self._node}: the plan here differs from node 0's (hash {self._digest} here, {digest} there): give the same plan "
                "file, script and --set options on every node"
            )

    def _wait(self, connection: ControlClient) -> None:
        """Wait for a message, at most POLL_S. With `poll`, since `select` accepts no descriptor above 1,023."""
        waiting = select.poll()
        waiting.register(connection, select.POLLIN)
        answers = self._answers.fileno()
        if answers is not None:
            waiting.register(answers, select.POLLIN)
        waiting.poll(POLL_S * 1000)
        self._clock.tick(POLL_S)

    def _handle(self, connection: ControlClient, message: Message) -> None:
        if message["kind"] == "start":
            try:
                self._report(f"{self._agents.start(message)}: started here")
            except (OSError, ValueError, TypeError, KeyError) as error:
                why = f"the agent on {self._node} could not be started: {error}"
                self._report(why)
                connection.send({"kind": "trouble", "log": message.get("log"), "why": why})
        elif message["kind"] == "ask" and isinstance(message.get("n"), int) and isinstance(message.get("query"), dict):
            self._answers.ask(message["n"], message["query"])

    def _send_news(self, connection: ControlClient) -> None:
        for log, code in self._report_ended():
            if code:
                connection.send({"kind": "trouble", "log": log, "why": f"the agent on {self._node} exited with code {code}"})
        for number, answer in self._answers.answers():
            connection.send({"kind": "answer", "n": number, "answer": answer})
        connection.flush()

    def _report_ended(self) -> list[tuple[str, int]]:
        """The log and exit code of agents that have ended since the last call."""
        ended = self._agents.ended()
        for run, _, code in ended:
            self._report(f"{run}: finished on this node" + (f" (agent exit code {code})" if code else ""))
        return [(log, code) for _, log, code in ended]

    def _finish(self, message: Message) -> int:
        self._agents.wait(LAST_AGENT_S)
        self._report_ended()
        code = message.get("code")
        self._report(f"{self._node}: the campaign has ended (exit code {code})")
        return code if isinstance(code, int) else 1
