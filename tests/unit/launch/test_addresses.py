"""Addresses of hosts, and whether every name led to a host of its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from seatrial.core.errors import HostError
from seatrial.launch.places.allocation import harness_addresses, master_address, route_to
from seatrial.launch.places.hosts import check_distinct_hosts
from seatrial.records.launch import Node
from seatrial.records.plan import PlaceSpec

OWN = {"lo": ("127.0.0.1", "::1"), "docker0": ("172.17.0.1",), "eth0": ("10.0.0.1", "fe80::1"), "ib0": ("10.9.0.1",)}


@pytest.mark.parametrize(
    ("route", "name", "interface", "expected"),
    [
        ("10.0.0.1", "head", "", ("10.0.0.1", "head", "172.17.0.1", "10.9.0.1")),
        # The plan's interfaces and no other, where this machine has them.
        ("10.0.0.1", "head", "ib", ("10.9.0.1",)),
        ("10.0.0.1", "head", "^lo,docker", ("10.0.0.1", "10.9.0.1")),
        ("10.0.0.1", "head", "bond0", ("10.0.0.1", "head", "172.17.0.1", "10.9.0.1")),
        (None, "head", "", ("head", "172.17.0.1", "10.0.0.1", "10.9.0.1")),
        *(("127.0.0.1", name, "", ("172.17.0.1", "10.0.0.1", "10.9.0.1")) for name in ("localhost", "127.0.1.1", "::1", "")),
    ],
)
def test_the_plans_interface_or_the_address_on_the_route_then_the_name_and_all_others_but_loopback(
    route: str | None, name: str, interface: str, expected: tuple[str, ...]
) -> None:
    assert harness_addresses("node1", name, interface, route=lambda host: route, own=OWN) == expected


def test_the_way_to_this_machine_is_known_without_sending_anything() -> None:
    assert route_to("127.0.0.1") == "127.0.0.1"
    assert route_to("no-such-host.invalid") is None


@pytest.mark.parametrize(
    ("resolves_to", "place", "expected"),
    [
        (["10.0.0.2"], {"master_addr": "meet.here"}, "meet.here"),
        (["10.0.0.2"], {}, "10.0.0.2"),
        (["127.0.1.1", "10.9.0.2"], {}, "10.9.0.2"),
        (["10.0.0.2"], {"interface": "ib"}, "10.9.0.2"),
        # Two interfaces match: the name decides.
        (["10.0.0.2"], {"interface": "^lo"}, "10.0.0.2"),
        ([], {}, "node1"),
        (["127.0.0.1"], {}, "node1"),
    ],
)
def test_where_ranks_meet(resolves_to: list[str], place: dict[str, str], expected: str) -> None:
    assert _master("node1", resolves_to, **place) == expected


def test_this_machine_is_met_at_its_address_on_the_route_to_the_others() -> None:
    assert _master("localhost", ["127.0.0.1"], is_here=True) == "10.0.0.7"
    assert _master("localhost", ["127.0.0.1"], others=(), is_here=True) == "127.0.0.1"


def _master(first: str, resolves_to: Sequence[str], others: Sequence[str] = ("node2",), is_here: bool = False, **place: str) -> str:
    return master_address(
        PlaceSpec(kind="hostfile", **place),  # type: ignore[arg-type]
        first,
        {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"], "ib0": ["10.9.0.2"]},
        others,
        is_here,
        route=lambda host: "10.0.0.7",
        resolve=lambda name: resolves_to,
    )


ETH = {"lo": ["127.0.0.1"], "docker0": ["172.17.0.1"]}


def _hello(host: str, address: str) -> dict[str, object]:
    return {"host": host, "addresses": {**ETH, "eth0": [address, "fe80::1"]}}


OWN_IDENTITY = ("head", frozenset({"172.17.0.1", "10.0.0.1"}))
NODES = tuple(Node(name=f"node{rank}", node_rank=rank, ranks=1, first_rank=rank) for rank in range(3))


def _check(*hellos: dict[str, object], here: tuple[str, ...] = ()) -> None:
    check_distinct_hosts(NODES, here, {node.name: hello for node, hello in zip(NODES, hellos, strict=True)}, OWN_IDENTITY)


def test_hosts_that_share_a_name_or_an_address_are_still_two() -> None:
    _check(_hello("localhost", "10.0.0.2"), _hello("localhost", "10.0.0.3"), _hello("other", "10.0.0.3"))


def test_a_name_that_leads_to_this_machine_is_refused() -> None:
    with pytest.raises(HostError, match=r"node1 resolved to this machine.*'head'") as caught:
        _check(_hello("a", "10.0.0.2"), _hello("head", "10.0.0.1"), _hello("c", "10.0.0.4"))
    assert caught.value.host == "node1"
    _check(_hello("a", "10.0.0.2"), _hello("head", "10.0.0.1"), _hello("c", "10.0.0.4"), here=("node1",))


def test_two_names_that_lead_to_one_host_are_refused() -> None:
    with pytest.raises(HostError, match="node2 resolved to node0"):
        _check(_hello("a", "10.0.0.2"), _hello("b", "10.0.0.3"), _hello("a", "10.0.0.2"))


def test_hosts_that_report_no_address_count_as_distinct() -> None:
    _check({"host": "a"}, {"host": "a"}, {"host": "a", "addresses": "none"})
