"""Many hosts: an agent is started on each and connects; then the run's ranks, devices, address and port are known.

    open a control server → nodes/<name>/call.json for each → transports start the agents → all have connected → Allocation
    start(orders): each reports its rendezvous address → all agree → `go` to each

No rank is started before all have connected: with a host missing, a job would hang at its rendezvous for minutes. On any error the
connections are closed, and agents that wait for their order end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from seatrial.core.control_connection.protocol import Message, new_token
from seatrial.core.control_connection.server import ControlServer, listen
from seatrial.core.errors import HostError, LaunchError, StoppedError
from seatrial.core.files import write_private_json
from seatrial.core.linux import raise_fd_limit
from seatrial.core.paths import AttemptPaths
from seatrial.core.private_files import is_world_writable, world_writable_text
from seatrial.launch.agent_group import AgentGroup, RemoteCleanup
from seatrial.launch.agents import agent_argv
from seatrial.launch.launchers.environment import portable_environment
from seatrial.launch.pernode_server import own_addresses
from seatrial.launch.places.allocation import harness_addresses, hosts_allocation, master_address, nodes_of
from seatrial.launch.places.rendezvous import agree_on_rendezvous
from seatrial.launch.transports import Exit, StartRequest
from seatrial.launch.transports.choice import NodeStarter, TransportChoice, choose_transports
from seatrial.launch.transports.ssh import connect_timeout_error, disconnect_error, start_error
from seatrial.machine.network import (
    LOOPBACK,
    THIS_MACHINE,
    is_reachable_address,
    is_this_host,
    listening_addresses,
    local_addresses,
    network_stack,
)
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentEndpoint, AgentOrder, Allocation, Node, RendezvousView
from seatrial.records.plan import PlaceSpec, RunSpec

# A loaded host takes this long to start an interpreter from a shared disk.
CONNECT_TIMEOUT_S = 60.0
# When one host cannot be started, others often fail for the same reason: all are reported together.
GATHER_S = 0.5
POLL_S = 0.2
# Names are looked up in parallel, so that a slow name server is waited for once only.
MAX_LOOKUPS = 64
# Beside one per connection: logs, pipes and other open files.
OTHER_DESCRIPTORS = 512
PYTHON_PATH = "PYTHONPATH"

Identity = tuple[str, frozenset[str]]
"""A host's own name and its addresses: either alone may be the same on several hosts."""


@dataclass(frozen=True)
class AllocatedHosts:
    """Agents that have connected and wait for their orders."""

    allocation: Allocation
    transports: TransportChoice
    group: AgentGroup
    sends_environment: bool
    """Whether ranks get the harness's variables on every host; not where each node's own command started its agent."""
    agree: Callable[[Sequence[AgentOrder]], Mapping[str, RendezvousView]] = lambda orders: {}
    """Resolves the rendezvous on every node; HostError where they disagree."""

    def start(self, orders: Sequence[AgentOrder], environ: Mapping[str, str] = os.environ) -> AgentGroup:
        """Send every node its order, in the order of the allocation's nodes, once all have the same rendezvous."""
        self.group.views = self.agree(orders)
        sent = portable_environment(environ) if self.sends_environment else None
        self.group.start({node.name: (order, sent) for node, order in zip(self.allocation.nodes, orders, strict=True)})
        return self.group


@contextlib.contextmanager
def allocate_hosts(
    spec: RunSpec, attempt: AttemptPaths, pernode_server: NodeStarter | None, should_stop: Callable[[], bool]
) -> Iterator[AllocatedHosts]:
    """Agents on all hosts of the run until the block ends; HostError for a host that cannot be used."""
    if spec.place.traits.typed_on_each_node and pernode_server is None:
        raise LaunchError(
            "place 'pernode' needs the command on every node: seatrial run PLAN --node-rank R --master-addr A --master-port P"
        )
    nodes = nodes_of(spec.place)
    # The usual limit of 1,024 is too low for a thousand hosts, each with a connection and one that may not be authenticated yet.
    raise_fd_limit(2 * len(nodes) + OTHER_DESCRIPTORS)
    here = nodes_here(nodes, pernode_server)
    others = [node.name for node in nodes if node.name not in here]
    logs = {node.name: attempt.node(node.name).start_log for node in nodes}
    start_argv = partial(agent_start_argv, spec, attempt, pernode_server)
    end_argv = partial(_end_argv, spec, attempt, pernode_server)
    token = new_token()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ControlServer(token, list(logs), listening=_listen(spec.place, pernode_server)))
        write_connection_files(attempt, agent_endpoints(spec.place, attempt, nodes, here, pernode_server, server.port, token))
        own = [name for name in logs if name in here]
        choice = choose_transports(spec.place, others, own, attempt.folder, start_argv, pernode_server)
        stack.callback(_release, server, choice)
        for transport, names in choice.by:
            transport.start([StartRequest(host=name, argv=start_argv(name), log=logs[name]) for name in names])
        hellos = wait_for_agents(server, logs, choice.exits, should_stop, by_srun=spec.place.traits.runs_in_jobs)
        if pernode_server is None:
            # Without ssh no name was looked up, and both commands may run on one machine for a trial.
            check_distinct_hosts(nodes, here, hellos)
        hostnames = {name: str(hello.get("host", "")) for name, hello in hellos.items()}
        cleanup = RemoteCleanup(choice.by, lambda name: StartRequest(host=name, argv=end_argv(name), log=logs[name]))
        group = AgentGroup(server, attempt, nodes, hostnames, [transport for transport, _ in choice.by], cleanup)
        stack.callback(group.close)
        allocation = _allocation(spec, nodes, others, pernode_server, hellos[nodes[0].name])
        agree = partial(agree_on_rendezvous, server, allocation, should_stop=should_stop)
        # srun passes this program's own variables on, and adds each node's.
        yield AllocatedHosts(
            allocation, choice, group, sends_environment=pernode_server is None and not spec.place.traits.runs_in_jobs, agree=agree
        )


def _listen(place: PlaceSpec, pernode_server: NodeStarter | None) -> list[socket.socket]:
    """Listen on the addresses of place.interface and, for this machine's agent, on loopback; without place.interface on all."""
    try:
        return listen(listening_addresses(place.interface, pernode_server.master_addr if pernode_server else ""))
    except OSError as error:
        raise LaunchError(f"cannot listen for agents: {error.strerror}; check place.interface") from error


def _allocation(
    spec: RunSpec, nodes: tuple[Node, ...], others: Sequence[str], pernode_server: NodeStarter | None, hello: Message
) -> Allocation:
    """`hello` is node 0's, which reserves the port."""
    first, place = nodes[0].name, spec.place
    port, interfaces = hello.get("port"), hello.get("addresses")
    if not isinstance(port, int):
        why = hello.get("trouble") or "reason unknown"
        problem = f"{first} could not reserve the rendezvous port ({why}): leave place.port out, so that a free one is used"
        raise HostError(problem, host=first, cause="port_in_use")
    if pernode_server is not None:
        address = place.master_addr or pernode_server.master_addr
    else:
        address = master_address(place, first, interfaces if isinstance(interfaces, dict) else {}, others, first not in others)
    return hosts_allocation(spec, nodes, address, port)


def agent_start_argv(spec: RunSpec, attempt: AttemptPaths, pernode_server: NodeStarter | None, name: str) -> tuple[str, ...]:
    return (*_agent_argv(spec, pernode_server, name), "--call", str(attempt.node(name).call))


def _end_argv(spec: RunSpec, attempt: AttemptPaths, pernode_server: NodeStarter | None, name: str) -> tuple[str, ...]:
    """The argv that ends the attempt's remaining processes on one host."""
    return (*_agent_argv(spec, pernode_server, name), "--end", str(attempt.folder))


def _agent_argv(spec: RunSpec, pernode_server: NodeStarter | None, name: str) -> tuple[str, ...]:
    python = spec.place.python or (pernode_server.python_of(name) if pernode_server else "")
    # A node's own command has a PYTHONPATH of its own.
    path = os.environ.get(PYTHON_PATH) if pernode_server is None else None
    return (*(("env", f"{PYTHON_PATH}={path}") if path else ()), *agent_argv(python))


def _release(server: ControlServer, choice: TransportChoice) -> None:
    """Close connections before transports: agents end when their connection does."""
    server.close()
    for transport, _ in choice.by:
        transport.close(after_run=False)


def nodes_here(nodes: Sequence[Node], pernode_server: NodeStarter | None) -> frozenset[str]:
    """The nodes that are this machine; without ssh that is node 0, which runs the campaign."""
    if pernode_server is not None:
        return frozenset({nodes[0].name})
    names = [node.name for node in nodes]
    own = local_addresses()
    with ThreadPoolExecutor(min(MAX_LOOKUPS, len(names))) as pool:
        found = pool.map(partial(is_this_host, own_addresses=own), names)
        return frozenset(name for name, is_here in zip(names, found, strict=True) if is_here)


def agent_endpoints(
    place: PlaceSpec,
    attempt: AttemptPaths,
    nodes: Sequence[Node],
    here: frozenset[str],
    pernode_server: NodeStarter | None,
    port: int,
    token: str,
) -> Iterator[AgentEndpoint]:
    """How every node's agent connects; the control server listens at `port`."""
    for node, addresses in zip(nodes, _addresses(place, nodes, here, pernode_server), strict=True):
        first = node.node_rank == 0
        yield AgentEndpoint(
            addresses=addresses,
            port=port,
            token=token,
            node=node.name,
            campaign=str(attempt.folder.parent.parent),
            attempt=str(attempt.folder),
            network_stack=network_stack(),
            holds_port=first,
            rendezvous_port=place.port if first else None,
            port_base=place.port_base if first else None,
        )


def write_connection_files(attempt: AttemptPaths, endpoints: Iterable[AgentEndpoint]) -> None:
    """nodes/<name>/call.json, which only its user can read: it holds the authentication token."""
    if is_world_writable(campaign := attempt.folder.parent.parent):
        raise LaunchError(world_writable_text(campaign))
    for endpoint in endpoints:
        own = attempt.node(endpoint.node)
        try:
            own.folder.mkdir(parents=True, exist_ok=True)
            # The log of an earlier start.
            own.start_log.unlink(missing_ok=True)
            write_private_json(own.call, to_json(endpoint))
        except OSError as error:
            raise LaunchError(f"{own.folder} cannot be written ({error.strerror}): free space or choose another output folder") from error


def _addresses(place: PlaceSpec, nodes: Sequence[Node], here: frozenset[str], pernode_server: NodeStarter | None) -> list[tuple[str, ...]]:
    """This machine's addresses, for each node."""
    if pernode_server is not None:
        shared = tuple(own_addresses(pernode_server.master_addr, place.interface))
        return [(LOOPBACK,) if node.name in here else shared for node in nodes]
    own_name = socket.gethostname()

    def addresses_for(node: Node) -> tuple[str, ...]:
        return (LOOPBACK,) if node.name in here else harness_addresses(node.name, own_name, place.interface)

    with ThreadPoolExecutor(min(MAX_LOOKUPS, len(nodes))) as pool:
        return list(pool.map(addresses_for, nodes))


def wait_for_agents(
    server: ControlServer,
    logs: Mapping[str, Path],
    exits: Callable[[], Mapping[str, Exit]],
    should_stop: Callable[[], bool],
    timeout_s: float = CONNECT_TIMEOUT_S,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    by_srun: bool = False,
) -> dict[str, Message]:
    """Every agent's hello; HostError for one that cannot connect, StoppedError when `should_stop` first. `by_srun`: what started them."""
    hellos: dict[str, Message] = {}
    until_m = monotonic() + timeout_s

    def failed_starts() -> dict[str, Exit]:
        found = exits()
        return {name: found[name] for name in logs if name in found and name not in hellos}

    while missing := [name for name in logs if name not in hellos]:
        _receive_hellos(server, POLL_S, hellos, logs, by_srun)
        if server.failed:
            raise LaunchError(f"{server.failed}: start the same command again, and report this bug")
        if should_stop():
            raise StoppedError(f"stopped while the agents of {len(missing)} of {len(logs)} hosts were being started; nothing was run")
        if failed_starts():
            _receive_hellos(server, GATHER_S, hellos, logs, by_srun)
            # An agent that connected at the last moment counts, even if its ssh has ended since.
            if failed := failed_starts():
                raise start_error(failed, logs, by_srun=by_srun)
        if monotonic() >= until_m and (late := [name for name in logs if name not in hellos]):
            raise connect_timeout_error(late, logs, timeout_s, by_srun=by_srun)
    return hellos


def _receive_hellos(server: ControlServer, timeout_s: float, hellos: dict[str, Message], logs: Mapping[str, Path], by_srun: bool) -> None:
    for name, message in server.wait(timeout_s):
        if message["kind"] == "hello":
            hellos[name] = message
        elif message["kind"] == "refused":
            raise HostError(str(message.get("why")), host=name, cause="node_not_started")
        elif message["kind"] == "lost" and name in hellos:
            raise disconnect_error(name, str(message.get("why")), logs, by_srun=by_srun)


def check_distinct_hosts(nodes: Sequence[Node], here: Collection[str], hellos: Mapping[str, Message], own: Identity | None = None) -> None:
    """HostError for a name that resolved to this machine, or to the same host as another; `here` may name this machine several times.

    A name that resolves wrongly here (to loopback, to a neighbour) takes ssh to another machine, and a run that should use two hosts
    would silently use one twice.
    """
    seen = {own or _identity(socket.gethostname(), local_addresses()): THIS_MACHINE}
    for node in nodes:
        if node.name in here:
            continue
        identity = identity_in_hello(hellos[node.name])
        other = seen.setdefault(identity, node.name)
        if other != node.name and identity[1]:
            problem = f"{node.name} resolved to {other}: the agent that was started there runs on '{identity[0]}'"
            fix = f"correct the name here (`getent hosts {node.name}`, ~/.ssh/config), or remove the line from the hostfile"
            raise HostError(f"{problem}; {fix}", host=node.name, cause="name_unknown")


def identity_in_hello(hello: Mapping[str, Any]) -> Identity:
    interfaces = hello.get("addresses")
    lists = interfaces.values() if isinstance(interfaces, dict) else ()
    return _identity(str(hello.get("host")), (str(address) for addresses in lists if isinstance(addresses, list) for address in addresses))


def _identity(hostname: str, addresses: Iterable[str]) -> Identity:
    return hostname, frozenset(address for address in addresses if is_reachable_address(address))
