"""Where runs are made, by the driver's variables: this machine's GPUs or CPU, hosts of a file, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.errors import UsageError
from seatrial_runbooks.stage1.place import hosts_asked, is_on_cpu, place_of
from seatrial_runbooks.stage1.variables import Variables, read


def variables(**given: str) -> Variables:
    return read({"MASTER_PORT": "29511", **given})


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"INCLUDE": "localhost:0,1"}, {"kind": "local", "include": "localhost:0,1"}),
        ({"INCLUDE": "localhost:0,1", "WORLD_SIZE": "2"}, {"kind": "local", "include": "localhost:0,1"}),
        ({"INCLUDE": "localhost", "WORLD_SIZE": "3"}, {"kind": "local", "ranks": 3}),
        ({"HOSTFILE": "hosts"}, {"kind": "hostfile", "hostfile": "hosts"}),
        ({"HOSTFILE": "hosts", "WORLD_SIZE": "4"}, {"kind": "hostfile", "hostfile": "hosts", "ranks": 4}),
        (
            {"HOSTFILE": "hosts", "INCLUDE": "node1:0,1@node2:0", "WORLD_SIZE": "3"},
            {"kind": "hostfile", "hostfile": "hosts", "include": "node1:0,1@node2:0", "ranks": 3},
        ),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1@node2"}, {"kind": "hostfile", "hostfile": "hosts", "include": "node1@node2"}),
    ],
)
def test_a_place_is_what_the_variables_name(given: dict[str, str], place: dict[str, Any]) -> None:
    assert place_of(variables(**given)) == {**place, "port": 29511}


def test_without_a_port_of_its_own_one_is_looked_for_from_the_base_on() -> None:
    place = place_of(read({"INCLUDE": "localhost:0", "MASTER_PORT_BASE": "30000"}))
    assert place["port_base"] == 30000 and "port" not in place


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"INCLUDE": "localhost"}, "names no GPUs: write localhost:0,1, or add WORLD_SIZE=2"),
        ({"INCLUDE": "localhost:0,1", "WORLD_SIZE": "3"}, "WORLD_SIZE is 3, and INCLUDE=localhost:0,1 names 2 GPUs"),
        ({"INCLUDE": "localhost:1,0"}, "in rising order; write localhost:0,1"),
        ({"INCLUDE": "localhost:a"}, "INCLUDE"),
        ({"INCLUDE": "node1:0"}, "names the host node1: add HOSTFILE="),
        ({"INCLUDE": "localhost:0@localhost:1"}, "names several hosts"),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1:0,1", "WORLD_SIZE": "3"}, "names 2 GPUs, one rank each"),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1:x"}, "INCLUDE: "),
    ],
)
def test_what_cannot_be_placed_is_refused_with_the_remedy(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as told:
        place_of(variables(**given))
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("given", "on_cpu", "asked"),
    [
        ({"INCLUDE": "localhost", "WORLD_SIZE": "2"}, True, "localhost"),
        ({"INCLUDE": "localhost:0"}, False, "localhost:0"),
        ({"HOSTFILE": "hosts"}, False, None),
        ({"HOSTFILE": "hosts", "WORLD_SIZE": "2"}, False, None),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1@node2", "WORLD_SIZE": "2"}, True, "node1@node2"),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1@node2"}, False, "node1@node2"),
        ({"HOSTFILE": "hosts", "INCLUDE": "node1:0", "WORLD_SIZE": "1"}, False, "node1:0"),
    ],
)
def test_ranks_are_on_the_cpu_where_no_gpu_is_named(given: dict[str, str], on_cpu: bool, asked: str | None) -> None:
    assert (is_on_cpu(variables(**given)), hosts_asked(variables(**given))) == (on_cpu, asked)
