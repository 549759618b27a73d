"""Which trials of links are made, and who is blamed for a slow one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from seatrial.preflight.hosts.link_trials import LONG, SHORT, in_rounds
from tests.unit.preflight.hosts.fake_hosts import FakeHosts, amiss, examined

MIB = 1 << 20


def trials(hosts: FakeHosts) -> list[list[Mapping[str, Any]]]:
    """The questions of each exchange that tried links."""
    found = [[asked["parts"]["speed"] for asked in one.values() if "speed" in asked.get("parts", {})] for one in hosts.asked]
    return [one for one in found if one]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 64, 65])
def test_no_two_trials_of_a_round_share_a_host(count: int) -> None:
    links = [(f"n{one}", f"n{(one + 1) % count}") for one in range(count)][: 1 if count == 2 else count]
    rounds = in_rounds(links)
    assert len(rounds) == (1 if count == 2 else 2 + count % 2)
    assert sorted(link for one in rounds for link in one) == sorted(links)
    for one in rounds:
        taking_part = [host for link in one for host in link]
        assert len(taking_part) == len(set(taking_part))


def test_sound_links_are_told_both_ways() -> None:
    hosts = FakeHosts("node1", "node2", "node3", "node4")
    (row,) = [row for row in examined(hosts).rows if row.name == "link speed"]
    assert {check.found for check in row.checks.values()} == {"1000 MiB/s out, 1000 MiB/s in"} and len(row.checks) == 4
    assert [len(one) for one in trials(hosts)] == [2, 2]
    assert {one["seconds"] for exchange in trials(hosts) for one in exchange} == {SHORT["seconds"]}
    long = FakeHosts("node1", "node2")
    examined(long, fast=False)
    assert [[one["bytes"] for one in exchange] for exchange in trials(long)] == [[LONG["bytes"]]]


@pytest.mark.parametrize("count", [3, 4, 5, 64])
def test_a_slow_host_is_named_with_its_figure_and_nobody_else_is(count: int) -> None:
    hosts = FakeHosts(*(f"node{number}" for number in range(count)))
    hosts.speeds["node1"] = 100 * MIB
    (found,) = amiss(examined(hosts)).items()
    assert found[0] == ("link speed", "node1") and not found[1].refuses
    assert found[1].found == "100 MiB/s out, 100 MiB/s in, tried with node0, node2; 1000 MiB/s elsewhere"
    assert found[1].prevents == "every step waits for the slowest link; no error is shown"
    assert all(word in found[1].fix for word in ("ethtool eth0", "place.interface", "tc qdisc"))


def test_of_two_hosts_the_head_tells_which_is_slow() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.speeds["node2"] = 0.25 * MIB
    (found,) = amiss(examined(hosts, head="this machine")).items()
    assert found[0] == ("link speed", "node2")
    assert found[1].found == "0.2 MiB/s out, 0.2 MiB/s in, tried with node1, this machine; 1000 MiB/s elsewhere"
    assert set(amiss(examined(hosts, head="node1"))) == {("link speed", "node1"), ("link speed", "node2")}, "nobody can tell"


def test_a_head_behind_a_slow_link_is_nobody_s_fault() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.speeds["this machine"] = MIB
    assert amiss(examined(hosts, head="this machine")) == {}


def test_what_lies_between_two_sound_hosts_names_both() -> None:
    hosts = FakeHosts("node1", "node2", "node3", "node4", "node5")
    hosts.between[frozenset(("node2", "node3"))] = 50 * MIB
    found = amiss(examined(hosts))
    assert set(found) == {("link speed", "node2"), ("link speed", "node3")}
    assert found["link speed", "node2"].found == "50 MiB/s out, 50 MiB/s in, tried with node3; 1000 MiB/s elsewhere"


def test_links_that_are_all_too_slow_are_said() -> None:
    hosts = FakeHosts("node1", "node2", "node3")
    hosts.speeds = dict.fromkeys(hosts.names, 8.0 * MIB)
    assert len(amiss(examined(hosts))) == 3
    hosts.speeds = dict.fromkeys(hosts.names, 11.0 * MIB)
    assert amiss(examined(hosts)) == {}


def test_one_direction_of_the_only_link() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "speed", **{"to": 1000 * MIB, "from": 100 * MIB})
    found = amiss(examined(hosts))["link speed", "node2"]
    assert found.found == "100 MiB/s out, 1000 MiB/s in, tried with node1"


def test_what_looks_slow_is_tried_once_more_and_as_long() -> None:
    class Busy(FakeHosts):
        def _speed(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
            self.speeds = {"node3": 10 * MIB} if asked["bytes"] == SHORT["bytes"] else {}
            return super()._speed(host, asked)

    hosts = Busy("node1", "node2", "node3", "node4")
    assert amiss(examined(hosts)) == {}
    assert [[one["bytes"] for one in exchange] for exchange in trials(hosts)[2:]] == [[LONG["bytes"]], [LONG["bytes"]]]


def test_a_trial_that_fails_is_said() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "speed", trouble="no answer within 5 s", to=None)
    found = amiss(examined(hosts))["link speed", "node2"]
    assert found.found == "could not be measured with node1: no answer within 5 s" and not found.refuses
    assert len(trials(hosts)) == 1, "who does not answer is not waited for twice"


def test_hosts_that_do_not_reach_each_other_are_not_tried() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "reach", troubles={"peer node2": "node2: Connection refused"})
    assert set(amiss(examined(hosts))) == {("reaches other hosts", "node1")} and trials(hosts) == []


def test_it_is_tried_at_the_address_that_was_reached_and_with_a_word_nobody_is_told() -> None:
    hosts = FakeHosts("node1", "node2")
    hosts.change("node1", "reach", at={"peer node2": "10.9.0.2"})
    examined(hosts)
    ((asked,),) = trials(hosts)
    assert asked["target"]["addresses"] == ["10.9.0.2"]
    listening = hosts.asked[0]["node2"]["parts"]["rendezvous"]
    assert asked["target"]["word"] == listening["word"] and listening["word"] not in listening["token"]
