"""The rendezvous as each node sees it, and whether all see the same."""

from __future__ import annotations

import pytest

from seatrial.agent.rendezvous import resolve_rendezvous
from seatrial.core.errors import HostError
from seatrial.launch.places.rendezvous import check_agreement
from seatrial.records.launch import Allocation, Node, RendezvousView

NICS = {"lo": ("127.0.0.1", "::1"), "eth0": ("fe80::1", "10.0.0.2"), "ib0": ("10.1.0.2",), "down0": ()}
ALLOCATION = Allocation(
    ranks=2,
    master_addr="node1",
    master_port=29500,
    nodes=tuple(Node(name=f"node{n + 1}", node_rank=n, ranks=1, first_rank=n) for n in (0, 1)),
)


@pytest.mark.parametrize(
    ("named", "environ", "chosen", "missing"),
    [
        # NCCL's grammar: prefixes, whole names, all others; of several the first.
        ({"NCCL_SOCKET_IFNAME": "ib,eth"}, {}, "eth0 10.0.0.2", ""),
        ({"NCCL_SOCKET_IFNAME": "=ib0"}, {}, "ib0 10.1.0.2", ""),
        ({"NCCL_SOCKET_IFNAME": "^lo,eth0"}, {}, "ib0 10.1.0.2", ""),
        ({"NCCL_SOCKET_IFNAME": "ens5"}, {}, "eth0 10.0.0.2", "ens5"),
        ({"NCCL_SOCKET_IFNAME": "down0"}, {}, "eth0 10.0.0.2", "down0"),
        ({"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth"}, {}, "eth0 10.0.0.2", "eth"),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, {}, "ib0 10.1.0.2", ""),
        # What a shell happens to export may not be used at all.
        ({}, {"NCCL_SOCKET_IFNAME": "ens5"}, "eth0 10.0.0.2", ""),
        ({}, {"NCCL_SOCKET_IFNAME": "ib0"}, "ib0 10.1.0.2", ""),
        ({}, {}, "eth0 10.0.0.2", ""),
    ],
)
def test_the_interface_that_a_node_would_use(named: dict[str, str], environ: dict[str, str], chosen: str, missing: str) -> None:
    question = {"kind": "rendezvous", "master_addr": "node1", "master_port": 29500, "env": named}
    view = resolve_rendezvous(question, environ, NICS, resolve=lambda name: ("10.0.0.1",), route=lambda address: "10.0.0.2")
    assert (view.nic, view.missing_interface, view.resolved) == (chosen, missing, ("10.0.0.1",))


def node(number: int, *resolved: str, missing: str = "") -> RendezvousView:
    nics = {"lo": ("127.0.0.1",), "eth0": (f"10.0.0.{number}",)}
    return RendezvousView(resolved=resolved, interface="eth0", address=f"10.0.0.{number}", interfaces=nics, missing_interface=missing)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (node(1, "10.0.0.1"), node(2, "10.0.0.1")),
        # Debian's installer gives a host's own name this address.
        (node(1, "127.0.1.1"), node(2, "10.0.0.1")),
        (node(1, "::1", "10.0.0.1"), node(2, "10.0.0.1", "fd00::1")),
        # Behind address translation, node 0 does not have the address by which all know it.
        (node(1, "192.0.2.7"), node(2, "192.0.2.7")),
        # Both nodes on one machine.
        (node(1, "127.0.0.1"), node(1, "127.0.0.1")),
    ],
)
def test_nodes_that_agree(first: RendezvousView, second: RendezvousView) -> None:
    check_agreement(ALLOCATION, {"node1": first, "node2": second})


@pytest.mark.parametrize(
    ("first", "second", "cause", "problem"),
    [
        (
            node(1, "10.0.0.1"),
            node(2, "10.0.0.9"),
            "rendezvous_unlike",
            "node2 resolves the rendezvous node1:29500 to a different address than node1: node1 resolves it to 10.0.0.1, its eth0 "
            "10.0.0.1; node2 resolves it to 10.0.0.9, its eth0 10.0.0.2: no rank was started",
        ),
        (node(1, "127.0.0.1"), node(2, "127.0.0.1"), "rendezvous_unlike", "to a different address than node1"),
        (node(1, "10.0.0.1"), node(2), "name_unknown", "node2 cannot resolve node1, the rendezvous address"),
        (
            node(1, "10.0.0.1"),
            node(2, "10.0.0.1", missing="ib0"),
            "nccl_interface",
            "node2 has no interface ib0 with an address; it has lo 127.0.0.1, eth0 10.0.0.2",
        ),
    ],
)
def test_nodes_that_would_not_meet(first: RendezvousView, second: RendezvousView, cause: str, problem: str) -> None:
    with pytest.raises(HostError) as raised:
        check_agreement(ALLOCATION, {"node1": first, "node2": second})
    assert (raised.value.host, raised.value.cause) == ("node2", cause) and problem in str(raised.value)
