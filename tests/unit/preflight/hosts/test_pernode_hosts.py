"""Nodes without ssh: known by their ranks, so that no name but the master's address is looked up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.campaign.host_check import examine_by_gate, own_need
from seatrial.preflight.hosts.examine import examine_hosts
from seatrial.preflight.hosts.rows import HostsExamined
from seatrial.preflight.hosts.wanted import Gathered, need_of_head
from seatrial.records.run_spec import PlaceSpec
from tests.unit.preflight.hosts.fake_hosts import FakeHosts, amiss, specs
from tests.unit.preflight.needs import make_need, make_run

NAMES = ("node0", "node1", "node2")
ADDRESSES = {"gpu-a": ["10.0.0.1"]}


def nodes(*names: str) -> FakeHosts:
    """Whose hosts call themselves otherwise, and know the master's address alone."""
    hosts = FakeHosts(*names)
    for name, own in zip(names, ("gpu-a", "gpu-b", "gpu-c"), strict=False):
        hosts.change(name, "facts", host=own)
        hosts.change(name, "names", own=own, addresses={**ADDRESSES, own: [hosts.address(name)]}, troubles={})
    return hosts


def looked_at(hosts: FakeHosts, **place: Any) -> HostsExamined:
    where = PlaceSpec(kind="pernode", nodes=len(hosts.names), ranks=len(hosts.names), **{"master_addr": "gpu-a", **place})
    gathered = Gathered(addresses=("gpu-a", "10.0.0.1"), host_names={"node2": "gpu-c"})
    return examine_hosts(hosts, make_need(), specs(*hosts.names), head="node0", fast=True, place=where, gathered=gathered)


def test_nothing_but_the_master_s_address_is_looked_up() -> None:
    hosts = nodes(*NAMES)
    found = looked_at(hosts)
    assert amiss(found) == {}
    assert hosts.asked[0]["node1"]["parts"]["names"]["names"] == ["gpu-a"]
    rows = {row.name for row in found.rows}
    assert "master address" in rows and rows.isdisjoint({"names of the others", "ssh", "pdsh", "ssh program"})


def test_who_calls_whom_and_where() -> None:
    hosts = nodes(*NAMES)
    looked_at(hosts)
    reach = {node: asked["parts"]["reach"]["targets"] for node, asked in hosts.asked[1].items()}
    assert {node: {name: target["addresses"] for name, target in targets.items()} for node, targets in reach.items()} == {
        "node0": {"peer node1": ["10.0.0.2"], "peer node2": ["10.0.0.3"]},
        "node1": {"peer node2": ["10.0.0.3"], "rendezvous": ["gpu-a"], "call": ["gpu-a", "10.0.0.1"]},
        "node2": {"peer node0": ["10.0.0.1"], "rendezvous": ["gpu-a"], "call": ["gpu-a", "10.0.0.1"]},
    }


def test_a_master_s_address_that_means_nothing_or_loopback() -> None:
    hosts = nodes("node0", "node1", "node2", "node3")
    # Node 0 itself may take it for loopback, which is only said.
    hosts.change("node0", "names", addresses={"gpu-a": ["127.0.1.1"]})
    hosts.change("node1", "names", addresses={"gpu-a": ["127.0.1.1"]})
    hosts.change("node2", "names", addresses={"gpu-a": []}, troubles={"gpu-a": "Name or service not known"})
    hosts.change("node3", "names", addresses=ADDRESSES)
    found = amiss(looked_at(hosts))
    assert set(found) == {("own name", "node0"), ("master address", "node1"), ("master address", "node2")}
    assert not found["own name", "node0"].refuses
    assert found["master address", "node1"].found == "gpu-a is 127.0.1.1 here" and found["master address", "node1"].refuses
    assert "Name or service not known" in found["master address", "node2"].prevents
    assert "--master-addr" in found["master address", "node2"].fix


def test_hosts_whose_own_names_are_loopback_never_find_one_another_by_gloo(tmp_path: Path) -> None:
    hosts = nodes("node0", "node1")
    for name, own in (("node0", "gpu-a"), ("node1", "gpu-b")):
        hosts.change(name, "names", own=own, addresses={**ADDRESSES, own: ["127.0.1.1"]})
    found = amiss(looked_at(hosts))
    assert {key for key in found if key[0] == "own name"} == {("own name", "node0"), ("own name", "node1")}
    assert "connectFullMesh failed" in found["own name", "node1"].prevents


def test_an_address_that_is_another_on_one_node() -> None:
    hosts = nodes(*NAMES)
    hosts.change("node2", "names", addresses={"gpu-a": ["192.168.0.9"]})
    (found,) = amiss(looked_at(hosts)).items()
    assert found[0] == ("master address", "node2") and found[1].found == "gpu-a is 192.168.0.9 here, 10.0.0.1 elsewhere"


def test_nodes_are_shown_with_what_their_hosts_call_themselves() -> None:
    hosts = nodes(*NAMES)
    hosts.change("node1", "facts", seatrial="0.0.9")
    hosts.change("node0", "reach", troubles={"peer node1": "10.0.0.2: No route to host"})
    hosts.trouble("node2", "the command on node2 has ended")
    named = {check.name: check.found for check in looked_at(hosts).checks if not check.ok}
    assert named["Seatrial version on node1 (gpu-b)"] == "0.0.9; 0.1.0 on node0 (gpu-a)"
    assert named["reaches other hosts on node0 (gpu-a)"] == "not node1 (gpu-b) (10.0.0.2: No route to host)"
    assert named["Python and Seatrial on node2 (gpu-c)"] == "the command on node2 has ended"
    assert set(looked_at(hosts).facts) == {"node0", "node1"}, "the campaign knows them by their ranks"


def test_nodes_on_one_machine_are_said_and_may_use_loopback() -> None:
    hosts = nodes("node0", "node1")
    for name in hosts.names:
        hosts.change(name, "facts", host="box", boot_id="one", interfaces={"lo": ["127.0.0.1"]})
        hosts.change(name, "names", addresses={"127.0.0.1": ["127.0.0.1"]})
    (found,) = amiss(looked_at(hosts, master_addr="127.0.0.1")).items()
    assert found[0] == ("a machine of its own", "node1") and not found[1].refuses and found[1].found == "node0 and node1 are both box"
    assert hosts.asked[1]["node0"]["parts"]["reach"]["targets"]["peer node1"]["addresses"] == ["127.0.0.1"]


class FakeGate:
    """As much of a Gate as the doctor needs."""

    def __init__(self, hosts: FakeHosts) -> None:
        self.ask, self.nodes, self.master_addr, self.addresses = hosts, hosts.names, "gpu-a", ["gpu-a", "10.0.0.1"]

    def host_of(self, node: str) -> str:
        return {"node0": "gpu-a"}.get(node, "gpu-b")


def test_the_gate_s_address_is_the_master_s_unless_the_plan_names_one(tmp_path: Path) -> None:
    need = pernode_need(tmp_path)
    for given, expected in (("", "gpu-a"), ("10.0.0.1", "10.0.0.1")):
        hosts = nodes("node0", "node1")
        for name in hosts.names:
            hosts.change(name, "names", addresses={"gpu-a": ["10.0.0.1"], "10.0.0.1": ["10.0.0.1"]})
        runs = tuple(replace(spec, place=replace(spec.place, master_addr=given)) for spec in need.runs)
        found = examine_by_gate(replace(need, runs=runs), FakeGate(hosts), fast=True)  # type: ignore[arg-type]
        assert amiss(found) == {}
        targets = hosts.asked[1]["node1"]["parts"]["reach"]["targets"]
        assert targets["rendezvous"]["addresses"] == [expected] and targets["call"]["addresses"] == ["gpu-a", "10.0.0.1"]


def pernode_need(cwd: Path) -> Any:
    place = PlaceSpec(kind="pernode", nodes=2, ranks=8, devices=("0", "1", "2", "3"), port=29500)
    return make_need(replace(make_run(cwd, bundled="dummy"), place=place), output=cwd)


def test_a_node_alone_is_asked_for_its_own_share(tmp_path: Path) -> None:
    for own in (need_of_head(pernode_need(tmp_path), "this machine"), own_need(pernode_need(tmp_path), ())):
        (spec,) = own.runs
        assert (spec.place.kind, spec.place.ranks, spec.place.devices, spec.place.port) == ("local", 4, ("0", "1", "2", "3"), 29500)
