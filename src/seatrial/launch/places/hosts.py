"""Many hosts: an agent is started on each and calls; then what the run gets is known, ranks, devices, address and port.

    open a switchboard → nodes/<name>/call.json for each → transports start the agents → all have called → Allocation
    start(orders): `go` to each

Whatever goes wrong on the way, the lines are closed: agents that wait for their order end by themselves.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.errors import HostError, LaunchError
from seatrial.launch import own_programs
from seatrial.launch.agent_group import AgentGroup
from seatrial.launch.environment import inherited
from seatrial.launch.nodes import nodes_of
from seatrial.launch.places.addresses import master_address
from seatrial.launch.places.calling import all_called
from seatrial.launch.places.calls import calls_for, nodes_here, write_calls
from seatrial.launch.places.identity import refuse_doubles
from seatrial.launch.transports.choose import Chosen, choose
from seatrial.launch.transports.leftovers import Leftovers
from seatrial.launch.transports.pernode import NodeStarter
from seatrial.launch.transports.transport import Ended, Start
from seatrial.line.protocol import Message, new_token
from seatrial.line.switchboard import Switchboard
from seatrial.machine.handles import make_room
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentOrder, Allocation, Node
from seatrial.records.run_spec import PERNODE, RunSpec

PYTHON_PATH = "PYTHONPATH"
# Beside one handle a line: logs, pipes and whatever else a harness has open.
OTHER_HANDLES = 512


@dataclass(frozen=True)
class TakenHosts:
    """Agents that have called and wait for their orders."""

    allocation: Allocation
    chosen: Chosen
    group: AgentGroup
    sends_environment: bool
    """Whether ranks get the variables of the harness, alike on every host; not where each node's own command started its agent."""

    def start(self, orders: Sequence[AgentOrder], environ: Mapping[str, str] = os.environ) -> AgentGroup:
        """Send every node its order, in the order of the allocation's nodes."""
        sent = inherited(environ) if self.sends_environment else None
        named = zip(self.allocation.nodes, orders, strict=True)
        self.group.go({node.name: (order, sent) for node, order in named})
        return self.group


@contextlib.contextmanager
def take_hosts(spec: RunSpec, attempt: AttemptPaths, gate: NodeStarter | None, should_stop: Callable[[], bool]) -> Iterator[TakenHosts]:
    """Agents on all hosts of the run until the block ends; HostError for a host that cannot be had."""
    if spec.place.kind == PERNODE and gate is None:
        raise LaunchError(
            "place 'pernode' needs the command on every node: seatrial run PLAN --node-rank R --master-addr A --master-port P"
        )
    nodes = nodes_of(spec.place)
    # Its usual 1,024 are too few for a thousand hosts.
    make_room(len(nodes) + OTHER_HANDLES)
    here = nodes_here(nodes, gate)
    token = new_token()
    with contextlib.ExitStack() as opened:
        board = opened.enter_context(Switchboard(token, [node.name for node in nodes]))
        write_calls(attempt, calls_for(spec.place, attempt, nodes, here, gate, board.port, token))
        chosen = _started(spec, attempt, nodes, here, gate, opened, board)
        logs = {node.name: attempt.node(node.name).start_log for node in nodes}
        hellos = all_called(board, logs, functools.partial(_ended, chosen), should_stop)
        if gate is None:
            # Without ssh no name was looked up, and who tries it out may well type both commands on one machine.
            refuse_doubles(nodes, here, hellos)
        names = {name: str(hello.get("host", "")) for name, hello in hellos.items()}
        leftovers = Leftovers(chosen.by, functools.partial(_end_start, spec, attempt, gate))
        group = AgentGroup(board, attempt, nodes, names, [transport for transport, _ in chosen.by], leftovers)
        opened.callback(group.close)
        yield TakenHosts(_allocation(spec, nodes, hellos, here, gate), chosen, group, sends_environment=gate is None)


def call_words(spec: RunSpec, attempt: AttemptPaths, gate: NodeStarter | None, name: str) -> tuple[str, ...]:
    """What starts the agent of one host."""
    return (*_agent(spec, gate, name), "--call", str(attempt.node(name).call))


def _end_start(spec: RunSpec, attempt: AttemptPaths, gate: NodeStarter | None, name: str) -> Start:
    """What ends on one host all that the attempt still runs there."""
    return Start(host=name, words=(*_agent(spec, gate, name), "--end", str(attempt.folder)), log=attempt.node(name).start_log)


def _agent(spec: RunSpec, gate: NodeStarter | None, name: str) -> tuple[str, ...]:
    python = spec.place.python or (gate.python_of(name) if gate else "")
    # A share has its own.
    path = os.environ.get(PYTHON_PATH) if gate is None else None
    given = ("env", f"{PYTHON_PATH}={path}") if path else ()
    return (*given, *own_programs.agent_words(python))


def is_meant_for_cpu(spec: RunSpec) -> bool:
    """Whether DeepSpeed is to be told that it must leave GPUs alone.

    Only where the plan says so by its `device` and no host names GPUs: that this machine has none says nothing of the nodes, and on
    each of them DeepSpeed looks by itself.
    """
    names_gpus = bool(spec.place.devices) or any(host.devices for host in spec.place.hosts)
    return spec.launcher.kind == "deepspeed" and not names_gpus and spec.settings.get("device") == "cpu"


def allocation_on(spec: RunSpec, nodes: tuple[Node, ...], master_addr: str, master_port: int) -> Allocation:
    """What the nodes of a run share; `as_seen_by` makes it one node's."""
    ranks = sum(node.ranks for node in nodes)
    return Allocation(ranks=ranks, master_addr=master_addr, master_port=master_port, cpu_only=is_meant_for_cpu(spec), nodes=nodes)


def _started(
    spec: RunSpec,
    attempt: AttemptPaths,
    nodes: Sequence[Node],
    here: frozenset[str],
    gate: NodeStarter | None,
    opened: contextlib.ExitStack,
    board: Switchboard,
) -> Chosen:
    """Agents on their way, by the transports that `opened` will close."""
    words_for = functools.partial(call_words, spec, attempt, gate)
    others = [node.name for node in nodes if node.name not in here]
    chosen = choose(spec.place, others, [node.name for node in nodes if node.name in here], attempt.folder, words_for, gate)
    opened.callback(_release, board, chosen)
    for transport, names in chosen.by:
        transport.start([Start(host=name, words=words_for(name), log=attempt.node(name).start_log) for name in names])
    return chosen


def _ended(chosen: Chosen) -> dict[str, Ended]:
    return {name: how for transport, _ in chosen.by for name, how in transport.ended().items()}


def _release(board: Switchboard, chosen: Chosen) -> None:
    """Lines are closed before what started the agents: they end by that."""
    board.close()
    for transport, _ in chosen.by:
        transport.close(after_run=False)


def _allocation(
    spec: RunSpec, nodes: tuple[Node, ...], hellos: Mapping[str, Message], here: frozenset[str], gate: NodeStarter | None
) -> Allocation:
    first = nodes[0].name
    port, told = hellos[first].get("port"), hellos[first].get("addresses")
    if not isinstance(port, int):
        why = hellos[first].get("trouble") or "it did not say why"
        problem = f"{first} could not reserve the port at which ranks meet ({why}): leave place.port out, so that a free one is taken"
        raise HostError(problem, host=first, cause="port_in_use")
    if gate is not None:
        address = spec.place.master_addr or gate.master_addr
    else:
        others = [node.name for node in nodes if node.name not in here]
        address = master_address(spec.place, first, told if isinstance(told, dict) else {}, others, first in here)
    return allocation_on(spec, nodes, address, port)
