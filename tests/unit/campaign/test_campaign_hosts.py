"""The machine of a run on many hosts is node 0's, and every host's make stands beside it."""

from __future__ import annotations

from seatrial.campaign.follow import clock_offsets
from seatrial.campaign.hosts import with_hosts
from seatrial.machine.fingerprint import fingerprint
from seatrial.records.command import Provenance
from seatrial.records.host_facts import HostFacts
from seatrial.records.nodes import NodeRecord

HEAD = Provenance(host="head", cpu="slow", cpu_count=2, gpu_uuid_list="GPU-1", git_commit_hash="abc", fingerprint="old")
NODE1 = HostFacts(
    name="node1", host="n1", cpu="fast", cpu_count=64, gpus=("H200", "H200"), driver_version="580", packages={"torch": "2.13"}
)
NODE2 = HostFacts(name="node2", host="n2", cpu="fast", cpu_count=64, gpus=("H200", "H200"), driver_version="570")


def test_a_run_on_one_machine_is_left_as_it_is() -> None:
    assert with_hosts(HEAD, [], {"node1": NODE1}) is HEAD
    assert with_hosts(HEAD, ["node1"], {}) is HEAD


def test_the_machine_is_that_of_node_0() -> None:
    told = with_hosts(HEAD, ["node1", "node2"], {"node2": NODE2, "node1": NODE1})
    assert (told.host, told.cpu, told.cpu_count, told.gpu_name, told.driver_version) == ("n1", "fast", 64, "H200", "580")
    assert told.gpu_uuid_list == "" and told.git_commit_hash == "abc"
    assert list(told.hosts) == ["node1", "node2"] and told.hosts["node2"]["driver_version"] == "570"
    assert told.fingerprint == fingerprint(told) != fingerprint(HEAD)


def test_a_head_that_is_node_0_keeps_what_it_knows_of_itself() -> None:
    told = with_hosts(HEAD, ["a", "node2"], {"a": HostFacts(name="a", host="head", cpu="other"), "node2": NODE2})
    assert told.gpu_uuid_list == "GPU-1" and told.cpu == "slow" and len(told.hosts) == 2


def test_clock_offsets_are_told_by_rank_where_they_were_measured() -> None:
    nodes = (
        NodeRecord(name="a", first_rank=0, ranks=2, clock_offset_s=0.5),
        NodeRecord(name="b", first_rank=2, ranks=1, clock_offset_s=None),
        NodeRecord(name="c", first_rank=3, ranks=1, clock_offset_s=-3600.0),
    )
    assert clock_offsets(nodes) == {0: 0.5, 1: 0.5, 3: -3600.0}
