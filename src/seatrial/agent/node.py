"""The agent of one node of many: it connects to the harness, identifies itself, waits for its order and carries it out.

In: nodes/<name>/call.json. Out: an exit code, and one sentence on the starter's standard error where the harness could not be reached.
What earlier attempts of the campaign left on this host is killed before any rank starts, so that none holds a GPU or a port; but only after
the harness has answered, which proves that this attempt is the campaign's current one. An agent that starts late, when its attempt was
given up and a later run uses the host, cannot connect and kills nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from seatrial.agent.harness import note
from seatrial.agent.harness_connection import HarnessConnection
from seatrial.agent.rendezvous import resolve_rendezvous
from seatrial.agent.supervise import run_order
from seatrial.core.control_connection.protocol import ControlClient, ControlConnectionError, Message
from seatrial.core.errors import LaunchError
from seatrial.core.files import READABLE, write_json, write_private_json
from seatrial.core.paths import AttemptPaths
from seatrial.core.ports import ReservedPort, reserve_port
from seatrial.core.private_files import NotPrivateError, read_private_json
from seatrial.core.timeouts import SuspendAwareClock, poll_until
from seatrial.machine.network import is_link_local, list_interfaces, own_address_test
from seatrial.machine.orphans import find_leftovers, kill_leftovers, list_segments
from seatrial.machine.provenance import is_recorded_variable
from seatrial.machine.secrets import mask
from seatrial.records.codec import from_json, to_json
from seatrial.records.launch import AgentEndpoint, AgentOrder, RendezvousView

FAILED, UNREACHED, UNREADABLE = 1, 3, 4
# A network disk may show what another host has just written a moment later.
CALL_FILE_TIMEOUT_S = 5.0
POLL_S = 0.2
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class CallError(Exception):
    """call.json cannot be read, is invalid, or may be another user's."""


def run_node_agent(path: Path) -> int:
    """The exit code of `python -m seatrial.agent --call PATH`."""
    with contextlib.closing(StarterStreams()) as starter:
        try:
            call = read_call(path)
            starter.detach(AttemptPaths(path.parent).agent_log)
            with contextlib.closing(RendezvousPort(call)) as port:
                port.reserve()
                clock = SuspendAwareClock()
                hello = {**describe_node(), "port": port.announce(), "trouble": port.problem}
                client = ControlClient.connect(call, hello, clock.now, is_own=own_address_test(call.network_stack))
                connection = HarnessConnection(client, call.node)
                starter.close()
                clear_host(call, connection, clock)
                port.reserve()
                return _obey(connection, call, clock, port.problem)
        except CallError as error:
            starter.print_error(str(error))
            return UNREADABLE
        except ControlConnectionError as error:
            note(str(error))
            starter.print_error(str(error))
            return UNREACHED


def read_call(path: Path) -> AgentEndpoint:
    """CallError where there is none after a while."""
    here = socket.gethostname()
    try:
        written = poll_until(lambda: read_private_json(path), lambda found: found is not None, CALL_FILE_TIMEOUT_S, POLL_S)
    except NotPrivateError as error:
        raise CallError(f"on {here} {error}") from error
    if written is None and path.exists():
        raise CallError(f"{here} cannot read {path}; check that the user there is the same, and may read the campaign's folder")
    if written is None:
        raise CallError(f"{here} has no {path}; check that the campaign's folder is shared with this host, at the same path")
    try:
        return from_json(AgentEndpoint, written)
    except ValueError as error:
        raise CallError(f"{here} does not understand {path} ({error}); check that all hosts have the same version of seatrial") from error


def describe_node() -> dict[str, Any]:
    """Host name, pid and addresses of this node. Link-local addresses mean nothing elsewhere and are left out: a hello must be short."""
    addresses = {name: [address for address in found if not is_link_local(address)] for name, found in list_interfaces().items()}
    return {"host": socket.gethostname(), "pid": os.getpid(), "addresses": addresses}


def clear_host(call: AgentEndpoint, connection: HarnessConnection, clock: SuspendAwareClock) -> None:
    """Kill what earlier attempts left here, while the harness wants this node."""
    # Checked before each scan: once the harness has given this attempt up, the next may run here.
    killed = kill_leftovers(Path(call.campaign), Path(call.attempt), lambda: connection.is_wanted(clock.now()))
    if killed:
        note(f"killed what earlier attempts had left here: {', '.join(map(str, sorted(killed)))}")


def _obey(connection: HarnessConnection, call: AgentEndpoint, clock: SuspendAwareClock, problem: str) -> int:
    go = connection.wait_for_go(clock, _resolve_rendezvous)
    if go is None:
        connection.close()
        return 0
    if problem:
        return _refuse(connection, problem)
    try:
        order, base_env = _parse_order(go, call)
    except ValueError as error:
        note(f"the order cannot be read: {error}")
        return _refuse(connection, f"the order cannot be read ({error}); check that all hosts have the same version of seatrial")
    _write_order(order, call)
    write_environment(AttemptPaths(Path(call.attempt)).node(call.node), base_env, order.command.env)
    return run_order(order, base_env, connection, clock)


def _resolve_rendezvous(query: Message) -> RendezvousView:
    view = resolve_rendezvous(query, os.environ)
    note(f"rendezvous {query.get('master_addr')}:{query.get('master_port')} ({', '.join(view.resolved) or 'unknown'}), NIC {view.nic}")
    return view


def _refuse(connection: HarnessConnection, why: str) -> int:
    connection.failed(why)
    connection.close()
    return FAILED


def _parse_order(go: Message, call: AgentEndpoint) -> tuple[AgentOrder, Mapping[str, str]]:
    """The order for this host, and the environment that it adds to."""
    order = from_json(AgentOrder, go.get("order"))
    env = go.get("env")
    # What was sent overrides the host's own environment (login shell, system).
    base_env = {**os.environ, **({str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else {})}
    # The order lists the shared memory of the harness's host; this host has its own.
    return replace(order, call=call, host=socket.gethostname(), shared_memory=list_segments()), base_env


def _write_order(order: AgentOrder, call: AgentEndpoint) -> None:
    """agent.json for this host: should this agent be killed, it records what was in the shared memory before."""
    try:
        write_private_json(AttemptPaths(Path(call.attempt)).node(call.node).agent_order, to_json(replace(order, call=None)))
    except OSError as error:
        note(f"agent.json could not be written ({error.strerror}); shared memory would stay if this agent were killed")


def write_environment(own: AttemptPaths, base_env: Mapping[str, str], added: Mapping[str, str]) -> None:
    """nodes/<name>/environment.json: the recorded variables that reached this node's ranks, secrets masked.

    The harness knows what it sent; the host's own variables (a login shell's exports) are known to its agent only. `base_env` is
    what the agent has or was sent, `added` what the order sets on top. A bad disk costs the file, never the run.
    """
    final = {**base_env, **added}
    recorded = [
        {"name": name, "value": mask(name, final[name]), "set_by": "seatrial" if name in added else "host"}
        for name in sorted(final)
        if is_recorded_variable(name)
    ]
    try:
        write_json(own.environment, {"variables": recorded})
    except OSError:
        note(f"{own.environment} could not be written; the run continues without it")


class RendezvousPort:
    """The rendezvous port of a run, held from `reserve` until `close` where this node is node 0; otherwise nothing.

    It is reserved before connecting to the harness, since hello announces it. A process of an earlier attempt may hold it, which is killed
    only after the harness has answered. So a port that the plan names (place.port) is announced all the same where such processes exist,
    and reserved once they are gone; `problem` is set if that fails too. Any other port is simply a free one.
    """

    def __init__(self, call: AgentEndpoint) -> None:
        self._call = call
        self._reserved: ReservedPort | None = None
        self.problem = ""
        """Why there is no port; sent in hello, so that the harness can report it."""

    def reserve(self) -> None:
        """Unless it is held already."""
        if not self._call.holds_port or self._reserved is not None:
            return
        try:
            self._reserved = reserve_port(self._call.rendezvous_port, self._call.port_base)
            self.problem = ""
        except LaunchError as error:
            note(str(error))
            self.problem = f"on {self._call.node}: {error}"

    def announce(self) -> int | None:
        """The port that is held, or will be once leftovers are killed; None where there is none."""
        if self._reserved is not None:
            return self._reserved.port
        leftovers = self.problem and find_leftovers(Path(self._call.campaign), Path(self._call.attempt))
        return self._call.rendezvous_port if leftovers else None

    def close(self) -> None:
        if self._reserved is not None:
            self._reserved.close()


class StarterStreams:
    """The streams of what started the agent (ssh, pdsh, a parent), until the agent detaches; errors printed there end up in start.log.

    The process stays the one that the transport started, so that a transport which waits for its command sees its exit code, and a host
    that ends a login's processes with the login does not do so in the middle of a run. But it leads its own session, ignores a hang-up,
    and holds none of the three streams, which may be closed at any time.
    """

    def __init__(self) -> None:
        self._stderr: int | None = None
        with contextlib.suppress(OSError):
            self._stderr = os.dup(_STDERR)

    def print_error(self, sentence: str) -> None:
        with contextlib.suppress(OSError):
            os.write(_STDERR if self._stderr is None else self._stderr, f"seatrial.agent: {sentence}\n".encode(errors="replace"))

    def detach(self, log: Path) -> None:
        """Notes go to `log` from now on; only `print_error` still reaches the starter."""
        # Refused to a session leader, which ssh's commands often are.
        with contextlib.suppress(OSError):
            os.setsid()
        # A handler, not SIG_IGN: an ignored signal would stay ignored in the ranks.
        signal.signal(signal.SIGHUP, _ignore)
        _replace_stream(self._open(log), _STDERR)
        _replace_stream(os.open(os.devnull, os.O_RDONLY), _STDIN)
        _replace_stream(os.open(os.devnull, os.O_WRONLY), _STDOUT)

    def _open(self, log: Path) -> int:
        try:
            return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, READABLE)
        except OSError as error:
            # A bad disk may cost notes, and never the run.
            self.print_error(f"{log} cannot be written ({error.strerror}); the agent's notes are lost")
            return os.open(os.devnull, os.O_WRONLY)

    def close(self) -> None:
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None


def _replace_stream(fd: int, stream: int) -> None:
    os.dup2(fd, stream)
    if fd != stream:
        os.close(fd)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A hang-up is no command."""
