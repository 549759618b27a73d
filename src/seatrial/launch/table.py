"""What would be started on which node, before anything is: for `plan show` and for people who check a launch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from seatrial.launch.launchers.registry import command_for
from seatrial.launch.nodes import as_seen_by, nodes_of
from seatrial.launch.places.hosts import allocation_on
from seatrial.machine.this_host import LOCALHOST
from seatrial.paths import AttemptPaths
from seatrial.ports import FIRST_PORT
from seatrial.records.command import Allocation, Command, Node
from seatrial.records.run_spec import RunSpec

_NOTHING: Mapping[str, str] = MappingProxyType({})


def commands_table(spec: RunSpec, attempt: AttemptPaths) -> dict[str, tuple[str, ...]]:
    """Node → the words that are started there, in order of ranks. Where the plan names no port or address, those that are likely."""
    return {name: command.argv for name, command in node_commands(spec, attempt).items()}


def node_commands(spec: RunSpec, attempt: AttemptPaths, caller: Mapping[str, str] = _NOTHING) -> dict[str, Command]:
    """Node → the whole command, with the variables of its ranks."""
    nodes = nodes_of(spec.place)
    port = spec.place.port or spec.place.port_base or FIRST_PORT
    if not nodes:
        alone = Allocation(ranks=spec.place.ranks, devices=spec.place.devices, master_port=port)
        return {LOCALHOST: command_for(spec, alone, attempt, caller)}
    shared = likely_allocation(spec, nodes, port)
    return {node.name: command_for(spec, as_seen_by(shared, node), attempt, caller) for node in nodes}


def likely_allocation(spec: RunSpec, nodes: tuple[Node, ...], master_port: int) -> Allocation:
    """What the nodes will share, before any was asked: where the plan names no address, ranks meet at the first by its name."""
    return allocation_on(spec, nodes, spec.place.master_addr or nodes[0].name, master_port)
