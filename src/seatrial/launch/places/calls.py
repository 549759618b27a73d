"""How each agent of a run is to call: nodes/<name>/call.json, with the addresses of this machine as that host may reach it.

In: the run's nodes. Out: which of them are this machine, and a private file for each. Names are looked up side by side: a name server
that is slow is waited for once, and not once a host.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from seatrial.errors import LaunchError
from seatrial.files import write_private_json
from seatrial.launch.gate_file import own_addresses
from seatrial.launch.places.addresses import addresses_for
from seatrial.launch.transports.pernode import NodeStarter
from seatrial.machine.interfaces import LOOPBACK, interface_addresses
from seatrial.machine.this_host import is_this_host
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import Node
from seatrial.records.line import NodeCall
from seatrial.records.run_spec import PlaceSpec

# Names that are looked up side by side.
MOST_AT_ONCE = 64


def nodes_here(nodes: Sequence[Node], gate: NodeStarter | None) -> frozenset[str]:
    """The nodes that are this machine; without ssh that is node 0, which runs the campaign."""
    if gate is not None:
        return frozenset({nodes[0].name})
    names = [node.name for node in nodes]
    own = interface_addresses()
    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(names))) as side_by_side:
        found = side_by_side.map(partial(is_this_host, own_addresses=own), names)
        return frozenset(name for name, is_here in zip(names, found, strict=True) if is_here)


def calls_for(
    place: PlaceSpec, attempt: AttemptPaths, nodes: Sequence[Node], here: frozenset[str], gate: NodeStarter | None, port: int, token: str
) -> Iterator[NodeCall]:
    """What every node's agent is told; the switchboard listens at `port`."""
    for node, addresses in zip(nodes, _addresses(place, nodes, here, gate), strict=True):
        first = node.node_rank == 0
        yield NodeCall(
            addresses=addresses,
            port=port,
            token=token,
            node=node.name,
            campaign=str(attempt.folder.parent.parent),
            attempt=str(attempt.folder),
            holds_port=first,
            rendezvous_port=place.port if first else None,
            port_base=place.port_base if first else None,
        )


def write_calls(attempt: AttemptPaths, calls: Iterable[NodeCall]) -> None:
    """One file a node, which its user alone can read: it holds the token of the line."""
    for call in calls:
        own = attempt.node(call.node)
        try:
            own.folder.mkdir(parents=True, exist_ok=True)
            # An earlier start's words are not this one's.
            own.start_log.unlink(missing_ok=True)
            write_private_json(own.call, to_json(call))
        except OSError as error:
            raise LaunchError(f"{own.folder} cannot be written ({error.strerror}): free space or choose another output folder") from error


def _addresses(place: PlaceSpec, nodes: Sequence[Node], here: frozenset[str], gate: NodeStarter | None) -> list[tuple[str, ...]]:
    """Of this machine, for each node."""
    if gate is not None:
        shared = tuple(own_addresses(gate.master_addr))
        return [(LOOPBACK,) if node.name in here else shared for node in nodes]
    own_name = socket.gethostname()
    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(nodes))) as side_by_side:
        return list(
            side_by_side.map(lambda node: (LOOPBACK,) if node.name in here else addresses_for(node.name, own_name, place.interface), nodes)
        )
