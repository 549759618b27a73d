"""The hosts of a command that a person typed."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.errors import UsageError
from seatrial.options.words import TypedOption
from seatrial.plan.command_hosts import hosts_typed, is_for_one_node, is_said_by_place


def typed(**options: str) -> list[TypedOption]:
    return [TypedOption(name=name, value=value, words=(f"--{name}", value)) for name, value in options.items()]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, {}),
        ({"include": "node1", "master_port": "29500"}, {}),
        ({"hostfile": "hosts"}, {"kind": "hostfile", "hostfile": "hosts"}),
        (
            {"hostfile": "hosts", "include": "n1@n2", "master_addr": "n1", "master_port": "29500", "ssh_port": "2222", "launcher": "PDSH"},
            {
                "kind": "hostfile",
                "hostfile": "hosts",
                "include": "n1@n2",
                "master_addr": "n1",
                "port": 29500,
                "ssh_args": ["-p", "2222"],
                "via": "pdsh",
            },
        ),
        ({"hostfile": "hosts", "num_nodes": "-1", "node_rank": "-1"}, {"kind": "hostfile", "hostfile": "hosts"}),
    ],
)
def test_the_options_become_keys_of_the_place(options: dict[str, str], place: dict[str, Any]) -> None:
    assert hosts_typed(typed(**options)) == place


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_gpus": "2"}, "--num_gpus 2: the slots of the hostfile say how many there are"),
        ({"num_nodes": "2"}, "--num_nodes 2: "),
        ({"node_rank": "1"}, "--node_rank 1: "),
        ({"master_port": "29x"}, "--master_port 29x: must be a number"),
        ({"ssh_port": "²"}, "--ssh_port ²: must be a number"),
        ({"launcher": "openmpi"}, "--launcher openmpi: other hosts are reached by pdsh"),
    ],
)
def test_what_only_a_plan_can_say_is_refused_with_what_to_do(options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}"):
        hosts_typed(typed(hostfile="hosts", **options))


def test_torchrun_on_one_node_says_nothing_and_on_more_it_is_refused() -> None:
    assert is_for_one_node("nnodes", "1") and is_for_one_node("nnodes", "1:1") and is_for_one_node("node_rank", "0")
    assert not is_for_one_node("nproc_per_node", "2")
    with pytest.raises(UsageError, match=r"^--nnodes 1:4: leave it out: `seatrial sweep --nodes 4 --node-rank R`.*nodes: 4}"):
        is_for_one_node("nnodes", "1:4")
    with pytest.raises(UsageError, match="--nodes N "):
        is_for_one_node("nnodes", "$N")
    with pytest.raises(UsageError, match="--nodes N "):
        is_for_one_node("node_rank", "1")


def test_what_the_place_says_is_not_passed_on() -> None:
    place = {"kind": "hostfile"}
    said = {option.name: is_said_by_place(option, place) for option in typed(hostfile="h", num_nodes="-1", bind_cores_to_rank="1")}
    assert said == {"hostfile": True, "num_nodes": True, "bind_cores_to_rank": False}
    assert not is_said_by_place(typed(module="1")[0], {})
