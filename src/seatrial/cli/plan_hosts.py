"""Hosts and ranks in `seatrial plan show`: a table for each way in which ranks lie on hosts, and the allocation a command is shown for.

host   node_rank  ranks  devices
node1  0          0-1    0,1
node2  1          2-3    0,1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seatrial.records.command import Allocation, Node
from seatrial.records.run_spec import HOSTFILE, LOCAL, PlaceSpec, RunSpec

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.records.campaign_plan import CampaignPlan

COLUMNS = ("host", "node_rank", "ranks", "devices")


def print_hosts(console: Console, plan: CampaignPlan) -> None:
    """The tables, or why there are none; nothing for runs on this machine."""
    from rich.table import Table
    from rich.text import Text

    from seatrial.errors import printable
    from seatrial.launch.nodes import nodes_of

    for place in dict.fromkeys(spec.place for spec in plan.chosen if spec.place.kind != LOCAL):
        nodes = () if is_unknown(place) else nodes_of(place)
        console.print(printable(_heading(place, len(nodes))))
        table = Table(*COLUMNS, box=None)
        for node in nodes:
            table.add_row(Text(node.name), str(node.node_rank), rank_span(node), ",".join(node.devices))
        if nodes:
            console.print(table)


def _heading(place: PlaceSpec, nodes: int) -> str:
    if not nodes:
        return f"hosts: {place.hostfile} cannot be read here, so which host has which of the {place.ranks} ranks is not known"
    whence = f"of {place.hostfile}" if place.kind == HOSTFILE else "that type the command"
    return f"hosts: {place.ranks} {'rank' if place.ranks == 1 else 'ranks'} on {nodes} {'host' if nodes == 1 else 'hosts'} {whence}"


def rank_span(node: Node) -> str:
    """`0-1`, or `0` for one alone."""
    last = node.first_rank + node.ranks - 1
    return f"{node.first_rank}-{last}" if last > node.first_rank else str(last)


def is_unknown(place: PlaceSpec) -> bool:
    """Whether the hosts of a run could not be told here."""
    return place.kind == HOSTFILE and not place.hosts


def first_share(given: Allocation, spec: RunSpec) -> Allocation:
    """The allocation of node 0, whose command is shown for all; as it is for a run on this machine."""
    from seatrial.launch.nodes import as_seen_by, nodes_of
    from seatrial.launch.table import likely_allocation

    nodes = nodes_of(spec.place)
    if not nodes:
        return given
    return as_seen_by(likely_allocation(spec, nodes, given.master_port), nodes[0])
