"""Which hosts a run has, and where each of them writes. Pure.

In: a run's spec. Out: its nodes in order of their ranks, none for a run on this machine; the folder that is one node's own; and the
allocation as that node sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from seatrial.errors import LaunchError
from seatrial.hostfile import name_problem
from seatrial.paths import AttemptPaths
from seatrial.records.command import Allocation, Node
from seatrial.records.run_spec import LOCAL, PERNODE, HostSpec, PlaceSpec


def nodes_of(place: PlaceSpec) -> tuple[Node, ...]:
    """Every host's share, by node_rank; () for `local`."""
    if place.kind == LOCAL:
        return ()
    hosts = _same_on_each(place) if place.kind == PERNODE else place.hosts
    if not hosts:
        # Never taken for a run on this machine: it would measure something else than was asked for.
        raise LaunchError(
            f"no host is known for place '{place.kind}' (hostfile '{place.hostfile}'): write one line `host slots=n` for each"
        )
    _refuse_names(hosts)
    first_ranks = accumulate((host.ranks for host in hosts), initial=0)
    return tuple(
        Node(name=host.name, node_rank=node_rank, ranks=host.ranks, first_rank=first, devices=host.devices)
        for node_rank, (host, first) in enumerate(zip(hosts, first_ranks, strict=False))
    )


def own_paths(attempt: AttemptPaths, node: Node | None) -> AttemptPaths:
    """Where a node's agent writes: node 0 into the attempt's folder, as on one host, every other into one of its own."""
    return attempt if node is None or node.node_rank == 0 else attempt.node(node.name)


def as_seen_by(allocation: Allocation, node: Node) -> Allocation:
    """The allocation that this node's command is built from."""
    return replace(allocation, node=node, devices=node.devices)


def _same_on_each(place: PlaceSpec) -> tuple[HostSpec, ...]:
    ranks, rest = divmod(place.ranks, max(1, place.nodes))
    if rest or not ranks:
        raise LaunchError(f"{place.ranks} ranks cannot be shared alike by {place.nodes} nodes: make place.ranks a multiple of place.nodes")
    return tuple(HostSpec(name=f"node{rank}", ranks=ranks, devices=place.devices) for rank in range(place.nodes))


def _refuse_names(hosts: Sequence[HostSpec]) -> None:
    """A spec may come from a file: a name becomes a folder and a word for ssh."""
    for host in hosts:
        if problem := name_problem(host.name):
            raise LaunchError(problem)
    names = [host.name for host in hosts]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LaunchError(f"host '{twice}' is named twice: give each host one line with all its slots")
