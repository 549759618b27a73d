"""What grows with the pairs of hosts is worked out once: who calls whom, what names mean, which links are slow."""

from __future__ import annotations

import random
import statistics

import pytest

from seatrial.preflight.hosts import names
from seatrial.preflight.hosts.answers import Answers, LinkSpeed
from seatrial.preflight.hosts.ring import Ring
from seatrial.preflight.hosts.speeds import LEAST_RATIO, SLOWEST_BYTES_PER_S, slow_links
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.records.reply import Reply
from seatrial.records.run_spec import HostSpec, PlaceSpec
from tests.unit.preflight.hosts.fake_hosts import FakeHosts, amiss, examined

HOSTS = ("node0", "node1", "node2", "node3")


def ring_of(listening: set[str], fast: bool = True) -> Ring:
    wanted = Wanted(hosts=tuple(HostSpec(name=name) for name in HOSTS), head="node0", place=PlaceSpec(kind="hostfile"))
    told = {name: {"port": 29650} if name in listening else {"trouble": "in use"} for name in HOSTS}
    return Ring(wanted, Answers(first={name: Reply(told={"parts": {"rendezvous": one}}) for name, one in told.items()}, fast=fast))


def test_node_0_calls_everybody_and_each_its_neighbour() -> None:
    ring = ring_of(set(HOSTS))
    assert {host: ring.peers(host) for host in HOSTS} == {
        "node0": ["node1", "node2", "node3"],
        "node1": ["node2"],
        "node2": ["node3"],
        "node3": ["node0"],
    }
    assert ring.peers("head") == [] and ring_of(set(HOSTS), fast=False).peers("node2") == ["node0", "node1", "node3"]


def test_who_does_not_listen_calls_and_is_passed_over() -> None:
    ring = ring_of({"node1", "node3"})
    assert [ring.peers(host) for host in HOSTS] == [["node1", "node3"], ["node3"], ["node3"], ["node1"]]
    assert [ring_of({"node2"}).peers(host) for host in HOSTS] == [["node2"], ["node2"], [], ["node2"]]
    assert [ring_of(set()).peers(host) for host in HOSTS] == [[], [], [], []]


def test_what_a_host_tells_of_names_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    taken = names.lists
    monkeypatch.setattr(names, "lists", lambda told, key: read.append(key) or taken(told, key))
    assert amiss(examined(FakeHosts(*(f"node{number}" for number in range(40))))) == {}
    assert len(read) == 40


@pytest.mark.parametrize("number", [2, 3, 4, 7, 50])
def test_a_link_is_held_against_the_median_of_the_others(number: int) -> None:
    drawn = random.Random(number)
    speeds = [drawn.choice([1.0, 20.0, 30.0, 100.0, 400.0]) * (1 << 20) for _ in range(number)]
    links = {(f"a{place}", f"b{place}"): LinkSpeed(there=speed, back=speed + 1.0) for place, speed in enumerate(speeds)}
    usual = {link: statistics.median_high([one.slowest for other, one in links.items() if other != link]) for link in links}
    slow = [link for link, one in links.items() if one.slowest < max(SLOWEST_BYTES_PER_S, LEAST_RATIO * usual[link])]
    assert slow_links(links) == slow
