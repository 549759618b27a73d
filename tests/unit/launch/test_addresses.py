"""Where hosts find each other: never at loopback, and in an order that tries the likely first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from seatrial.errors import HostError
from seatrial.launch.places.addresses import addresses_for, master_address, route_to
from seatrial.launch.places.identity import refuse_doubles
from seatrial.records.command import Node
from seatrial.records.run_spec import PlaceSpec

OWN = {"lo": ("127.0.0.1", "::1"), "docker0": ("172.17.0.1",), "eth0": ("10.0.0.1", "fe80::1"), "ib0": ("10.9.0.1",)}


def _addresses(route: str | None, name: str = "head", interface: str = "") -> tuple[str, ...]:
    return addresses_for("node1", name, interface, route=lambda host: route, own=OWN)


def test_the_address_on_the_way_then_the_name_then_all_others() -> None:
    assert _addresses("10.0.0.1") == ("10.0.0.1", "head", "172.17.0.1", "10.9.0.1")


def test_the_plans_interface_comes_before_the_others() -> None:
    assert _addresses("10.0.0.1", interface="ib") == ("10.0.0.1", "head", "10.9.0.1", "172.17.0.1")


def test_a_host_nobody_knows_the_way_to_still_gets_all_there_are() -> None:
    assert _addresses(None) == ("head", "172.17.0.1", "10.0.0.1", "10.9.0.1")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.0.1.1", "::1", ""])
def test_never_loopback(name: str) -> None:
    assert _addresses("127.0.0.1", name) == ("172.17.0.1", "10.0.0.1", "10.9.0.1")


def test_the_way_to_this_machine_is_known_without_sending_anything() -> None:
    assert route_to("127.0.0.1") == "127.0.0.1"
    assert route_to("no-such-host.invalid") is None


TOLD = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"], "ib0": ["10.9.0.2"]}


def _master(first: str, resolves_to: Sequence[str], others: Sequence[str] = ("node2",), is_here: bool = False, **place: str) -> str:
    return master_address(
        PlaceSpec(kind="hostfile", **place),  # type: ignore[arg-type]
        first,
        TOLD,
        others,
        is_here,
        route=lambda host: "10.0.0.7",
        resolve=lambda name: resolves_to,
    )


def test_ranks_meet_where_the_plan_says() -> None:
    assert _master("node1", ["10.0.0.2"], master_addr="meet.here") == "meet.here"


def test_ranks_meet_at_the_address_that_the_first_host_says_it_has() -> None:
    assert _master("node1", ["10.0.0.2"]) == "10.0.0.2"
    assert _master("node1", ["127.0.1.1", "10.9.0.2"]) == "10.9.0.2"


def test_ranks_meet_on_the_plans_interface() -> None:
    assert _master("node1", ["10.0.0.2"], interface="ib") == "10.9.0.2"
    assert _master("node1", ["10.0.0.2"], interface="^lo") == "10.0.0.2", "two interfaces fit: the name decides"


def test_a_name_that_gives_no_address_of_the_host_is_left_to_the_hosts() -> None:
    assert _master("node1", []) == "node1"
    assert _master("node1", ["127.0.0.1"]) == "node1"


def test_this_machine_is_met_at_its_address_on_the_way_to_the_others() -> None:
    assert _master("localhost", ["127.0.0.1"], is_here=True) == "10.0.0.7"
    assert _master("localhost", ["127.0.0.1"], others=(), is_here=True) == "127.0.0.1"


ETH = {"lo": ["127.0.0.1"], "docker0": ["172.17.0.1"]}


def _hello(host: str, address: str) -> dict[str, object]:
    return {"host": host, "addresses": {**ETH, "eth0": [address, "fe80::1"]}}


OWN_IDENTITY = ("head", frozenset({"172.17.0.1", "10.0.0.1"}))
NODES = tuple(Node(name=f"node{rank}", node_rank=rank, ranks=1, first_rank=rank) for rank in range(3))


def _refuse(*hellos: dict[str, object], here: tuple[str, ...] = ()) -> None:
    refuse_doubles(NODES, here, {node.name: hello for node, hello in zip(NODES, hellos, strict=True)}, OWN_IDENTITY)


def test_hosts_that_share_a_name_or_an_address_are_still_two() -> None:
    _refuse(_hello("localhost", "10.0.0.2"), _hello("localhost", "10.0.0.3"), _hello("other", "10.0.0.3"))


def test_a_name_that_leads_to_this_machine_is_refused() -> None:
    with pytest.raises(
        HostError, match="node1 led to this machine: the agent that was started there says that it runs on 'head'"
    ) as caught:
        _refuse(_hello("a", "10.0.0.2"), _hello("head", "10.0.0.1"), _hello("c", "10.0.0.4"))
    assert caught.value.host == "node1"
    _refuse(_hello("a", "10.0.0.2"), _hello("head", "10.0.0.1"), _hello("c", "10.0.0.4"), here=("node1",))


def test_two_names_that_lead_to_one_host_are_refused() -> None:
    with pytest.raises(HostError, match="node2 led to node0"):
        _refuse(_hello("a", "10.0.0.2"), _hello("b", "10.0.0.3"), _hello("a", "10.0.0.2"))


def test_hosts_that_tell_no_address_are_believed() -> None:
    _refuse({"host": "a"}, {"host": "a"}, {"host": "a", "addresses": "none"})
