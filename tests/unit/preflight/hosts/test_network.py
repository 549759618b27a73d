"""The network between hosts: interfaces, names, connections and link speeds."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping
from typing import Any

import pytest

from seatrial.core.hostfile import HostSpec
from seatrial.preflight.hosts.network import (
    LONG,
    MIN_RATIO,
    SHORT,
    SLOWEST_BYTES_PER_S,
    check_interfaces,
    check_reach,
    reach_fix,
    slow_links,
    trial_rounds,
)
from seatrial.preflight.hosts.queries import GLOO, NCCL, PLACE, Answers, HostsNeed, LinkSpeed, Ring
from seatrial.records.caution import Check
from seatrial.records.launch import Reply
from seatrial.records.plan import PlaceSpec
from tests.facts import states
from tests.unit.preflight.hosts.factory import FakeHosts, examined, failed, found, make_answers, make_hosts_need

THERE = {"lo": ("127.0.0.1",), "eth0": ("10.0.0.1",), "ib0": (), "eth1": ("fe80::1",)}


def _check(who: str, text: str, interfaces: Any = THERE) -> Check:
    need = make_hosts_need("a", interfaces={who: text})
    return found(check_interfaces(need, make_answers(facts={"a": {"interfaces": interfaces}})))[f"interface by {who}", "a"]


@pytest.mark.parametrize(("who", "text"), [(PLACE, "eth0"), (NCCL, "eth"), (NCCL, "^lo"), (NCCL, "=eth0"), (GLOO, "eth0")])
def test_one_that_is_up_and_has_an_address(who: str, text: str) -> None:
    assert _check(who, text).ok and _check(who, text).found == "eth0 10.0.0.1"


@pytest.mark.parametrize(
    ("who", "text", "reason"),
    [
        (NCCL, "ib", "ib0 has no address"),
        (NCCL, "eno", "nothing that is up fits 'eno'"),
        (NCCL, "lo", "'lo' takes lo first, which is loopback"),
        (GLOO, "eth", "no interface eth that is up"),
        (GLOO, "=eth0", "'=eth0' is NCCL's way of writing: Gloo takes whole names only"),
        (GLOO, "lo", "lo has no address that others can reach"),
        (GLOO, "eth1", "eth1 has no address that others can reach"),
    ],
)
def test_one_that_is_of_no_use_is_refused_with_those_that_are(who: str, text: str, reason: str) -> None:
    check = _check(who, text)
    assert not check.ok and check.refuses and check.found == reason and "(eth0)" in check.fix


LISTENS: dict[str, Any] = {"rendezvous": {"port": 29650}, "call": {"port": 40000}}


def _reach(**troubles: str) -> dict[str, Any]:
    return {"reach": {"troubles": {name.replace("_", " "): trouble for name, trouble in troubles.items()}}}


def test_all_is_well() -> None:
    answers = make_answers({"a": LISTENS, "b": LISTENS}, second={"a": _reach(), "b": _reach()})
    results = found(check_reach(make_hosts_need("a", "b"), answers))
    assert all(check.ok for check in results.values())
    assert {name for name, host in results if host == "b"} == {
        "rendezvous port",
        "reaches the rendezvous",
        "reaches other hosts",
        "reaches the head",
    }
    assert {name for name, host in results if host == "a"} == {"rendezvous port", "reaches other hosts"}
    assert results["reaches the rendezvous", "b"].found == "a port 29650" and results["reaches other hosts", "a"].found == "b"


def test_each_way_that_is_closed_is_reported_with_what_to_open() -> None:
    troubles = {"rendezvous": "a: Connection refused", "peer_a": "10.0.0.1: No route to host", "call": "10.0.0.1: timed out"}
    answers = make_answers({"a": LISTENS, "b": LISTENS}, second={"a": _reach(), "b": _reach(**troubles)})
    results = found(check_reach(make_hosts_need("a", "b"), answers))
    assert (
        results["reaches the rendezvous", "b"].found == "port 29650: a: Connection refused"
        and results["reaches the rendezvous", "b"].refuses
    )
    assert "socketStartConnect: Connect to … failed : No route to host" in results["reaches other hosts", "b"].prevents
    assert results["reaches other hosts", "b"].found == "not a (10.0.0.1: No route to host)"
    assert results["reaches the head", "b"].found == "10.0.0.1: timed out" and "from b" in results["reaches the head", "b"].prevents


def test_a_port_that_cannot_be_had_names_the_plans_own_on_node_0_alone() -> None:
    busy = {"rendezvous": {"trouble": "Address already in use"}}
    results = found(check_reach(make_hosts_need("a", "b", place={"port": 29500}), make_answers({"a": busy, "b": busy})))
    assert results["rendezvous port", "a"].found == "port 29500: Address already in use"
    assert results["rendezvous port", "b"].found == "Address already in use"


def test_a_host_that_fell_silent_is_one_trouble_and_one_that_was_not_asked_none() -> None:
    answers = make_answers({"a": LISTENS, "b": LISTENS, "c": LISTENS}, second={"b": {"reach": {"trouble": "no answer within 10 s"}}})
    results = {key: check for key, check in found(check_reach(make_hosts_need("a", "b", "c"), answers)).items() if not check.ok}
    assert list(results) == [("reaches other hosts", "b")] and results["reaches other hosts", "b"].found == "no answer within 10 s"


@pytest.mark.parametrize(
    ("problem", "begins"),
    [("Name or service not known", "correct the name"), ("cannot resolve it", "correct the name"), ("refused", "open it"), ("", "open it")],
)
def test_a_name_is_corrected_before_a_port_is_opened(problem: str, begins: str) -> None:
    assert reach_fix(problem).startswith(begins)


MIB = 1 << 20


def trials(hosts: FakeHosts) -> list[list[Mapping[str, Any]]]:
    """The questions of each exchange that tried links."""
    found = [[asked["parts"]["speed"] for asked in one.values() if "speed" in asked.get("parts", {})] for one in hosts.requests]
    return [one for one in found if one]


@pytest.mark.parametrize("count", [2, 3, 4, 65])
def test_no_two_trials_of_a_round_share_a_host(count: int) -> None:
    links = [(f"n{one}", f"n{(one + 1) % count}") for one in range(count)][: 1 if count == 2 else count]
    rounds = trial_rounds(links)
    assert len(rounds) == (1 if count == 2 else 2 + count % 2)
    assert sorted(link for one in rounds for link in one) == sorted(links)
    for one in rounds:
        taking_part = [host for link in one for host in link]
        assert len(taking_part) == len(set(taking_part))


def test_sound_links_are_reported_both_ways() -> None:
    hosts = FakeHosts("node1", "node2", "node3", "node4")
    (row,) = [row for row in examined(hosts).rows if row.name == "link speed"]
    assert {check.found for check in row.checks.values()} == {"1000 MiB/s out, 1000 MiB/s in"} and len(row.checks) == 4
    assert [len(one) for one in trials(hosts)] == [2, 2]
    assert {one["seconds"] for exchange in trials(hosts) for one in exchange} == {SHORT["seconds"]}
    long = FakeHosts("node1", "node2")
    examined(long, fast=False)
    assert [[one["bytes"] for one in exchange] for exchange in trials(long)] == [[LONG["bytes"]]]


@pytest.mark.parametrize("count", [3, 64])
def test_a_slow_host_is_named_with_its_figure_and_nobody_else_is(count: int) -> None:
    hosts = FakeHosts(*(f"node{number}" for number in range(count)))
    hosts.speeds["node1"] = 100 * MIB
    (found,) = failed(examined(hosts)).items()
    assert found[0] == ("link speed", "node1") and not found[1].refuses
    assert states(found[1].found, "100 MiB/s out", "100 MiB/s in", "node0, node2", "1000 MiB/s")
    assert found[1].prevents
    assert all(word in found[1].fix for word in ("ethtool eth0", "place.interface", "tc qdisc"))


def test_of_two_hosts_the_head_shows_which_is_slow() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.speeds["node2"] = 0.25 * MIB
    (found,) = failed(examined(hosts, head="this machine")).items()
    assert found[0] == ("link speed", "node2")
    assert states(found[1].found, "0.2 MiB/s out", "0.2 MiB/s in", "node1, this machine", "1000 MiB/s")
    assert set(failed(examined(hosts, head="node1"))) == {("link speed", "node1"), ("link speed", "node2")}, "nobody can tell"


def test_a_head_behind_a_slow_link_is_nobody_s_fault() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.speeds["this machine"] = MIB
    assert failed(examined(hosts, head="this machine")) == {}


def test_what_lies_between_two_sound_hosts_names_both() -> None:
    hosts = FakeHosts("node1", "node2", "node3", "node4", "node5")
    hosts.between[frozenset(("node2", "node3"))] = 50 * MIB
    found = failed(examined(hosts))
    assert set(found) == {("link speed", "node2"), ("link speed", "node3")}
    assert found["link speed", "node2"].found.split("; ")[0] == "50 MiB/s out, 50 MiB/s in, tried with node3"


def test_links_that_are_all_too_slow_are_reported() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.speeds = dict.fromkeys(hosts.names, 8.0 * MIB)
    assert len(failed(examined(hosts))) == 3
    hosts.speeds = dict.fromkeys(hosts.names, 11.0 * MIB)
    assert failed(examined(hosts)) == {}


def test_one_direction_of_the_only_link() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "speed", **{"to": 1000 * MIB, "from": 100 * MIB})
    found = failed(examined(hosts))["link speed", "node2"]
    assert found.found == "100 MiB/s out, 1000 MiB/s in, tried with node1"


def test_what_looks_slow_is_tried_once_more_and_as_long() -> None:
    class Busy(FakeHosts):
        def _speed(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
            self.speeds = {"node3": 10 * MIB} if asked["bytes"] == SHORT["bytes"] else {}
            return super()._speed(host, asked)

    hosts = Busy("node1", "node2", "node3", "node4")
    assert failed(examined(hosts)) == {}
    assert [[one["bytes"] for one in exchange] for exchange in trials(hosts)[2:]] == [[LONG["bytes"]], [LONG["bytes"]]]


def test_a_trial_that_fails_is_reported() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "speed", trouble="no answer within 5 s", to=None)
    found = failed(examined(hosts))["link speed", "node2"]
    assert found.found == "could not be measured with node1: no answer within 5 s" and not found.refuses
    assert len(trials(hosts)) == 1, "who does not answer is not waited for twice"


def test_hosts_that_do_not_reach_each_other_are_not_tried() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "reach", troubles={"peer node2": "node2: Connection refused"})
    assert set(failed(examined(hosts))) == {("reaches other hosts", "node1")} and trials(hosts) == []


def test_it_is_tried_at_the_address_that_was_reached_and_with_a_secret() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "reach", at={"peer node2": "10.9.0.2"})
    examined(hosts)
    ((asked,),) = trials(hosts)
    assert asked["target"]["addresses"] == ["10.9.0.2"]
    listening = hosts.requests[0]["node2"]["parts"]["rendezvous"]
    assert asked["target"]["word"] == listening["word"] and listening["word"] not in listening["token"]


HOSTS = ("node0", "node1", "node2", "node3")


def ring_of(listening: set[str], fast: bool = True) -> Ring:
    need = HostsNeed(hosts=tuple(HostSpec(name=name) for name in HOSTS), head="node0", place=PlaceSpec(kind="hostfile"))
    results = {name: {"port": 29650} if name in listening else {"trouble": "in use"} for name in HOSTS}
    return Ring(need, Answers(first={name: Reply(answer={"parts": {"rendezvous": one}}) for name, one in results.items()}, fast=fast))


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


@pytest.mark.parametrize("number", [2, 3, 50])
def test_a_link_is_held_against_the_median_of_the_others(number: int) -> None:
    drawn = random.Random(number)
    speeds = [drawn.choice([1.0, 20.0, 30.0, 100.0, 400.0]) * (1 << 20) for _ in range(number)]
    links = {(f"a{place}", f"b{place}"): LinkSpeed(there=speed, back=speed + 1.0) for place, speed in enumerate(speeds)}
    usual = {link: statistics.median_high([one.slowest for other, one in links.items() if other != link]) for link in links}
    slow = [link for link, one in links.items() if one.slowest < max(SLOWEST_BYTES_PER_S, MIN_RATIO * usual[link])]
    assert slow_links(links) == slow
