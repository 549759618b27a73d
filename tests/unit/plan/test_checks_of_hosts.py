"""A place on many hosts: which keys belong to which kind, and the words that reach ssh, NCCL and the hosts."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.plan.checks_of_hosts import KINDS_OF_KEY, check_hosts, check_keys_of_kind, uneven
from seatrial.plan.schema import Launcher, Place, Plan, Workload

ON_HOSTS: dict[str, Any] = {"kind": "hostfile", "hostfile": "hosts"}
ON_NODES: dict[str, Any] = {"kind": "pernode", "nodes": 2}


def plan(launcher: str = "torchrun", **place: Any) -> Plan:
    return Plan(name="x", workload=Workload(module="dummy"), launcher=Launcher(kind=launcher), place=Place(**place))


def refused(asked: Plan) -> str:
    with pytest.raises(PlanError) as caught:
        check_keys_of_kind(asked)
        check_hosts(asked)
    return str(caught.value)


@pytest.mark.parametrize(
    ("ranks", "nodes", "problem"),
    [
        (4, 2, None),
        (1, 1, None),
        (3, 2, "3 ranks cannot be shared alike by 2 nodes (place.nodes); make it 2 or 4"),
        (1, 2, "1 ranks cannot be shared alike by 2 nodes (place.nodes); make it 2"),
    ],
)
def test_ranks_are_shared_alike(ranks: int, nodes: int, problem: str | None) -> None:
    assert uneven(ranks, nodes) == problem


def test_every_key_with_kinds_is_a_key_of_the_place() -> None:
    assert set(KINDS_OF_KEY) <= set(Place.model_fields)


@pytest.mark.parametrize("place", [{}, ON_HOSTS, ON_NODES])
def test_a_place_without_more_has_no_key_of_another(place: dict[str, Any]) -> None:
    check_keys_of_kind(plan(**place))


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ({"hostfile": "hosts"}, "place.hostfile: belongs to `kind: hostfile`; leave it out to run on this machine"),
        ({"exclude": "n1"}, "place.exclude: belongs to `kind: hostfile`; name the GPUs to use with place.include"),
        ({**ON_NODES, "via": "ssh"}, "place.via: belongs to `kind: hostfile`; leave it out, nobody is reached by ssh"),
        ({**ON_HOSTS, "nodes": 2}, "place.nodes: belongs to `kind: pernode`; place.include says which hosts of the file to use"),
        ({"alike": "refuse"}, "place.alike: belongs to `kind: hostfile` or `kind: pernode`; leave it out to run on this machine"),
    ],
)
def test_a_key_of_another_kind_says_what_to_do_instead(place: dict[str, Any], says: str) -> None:
    assert refused(plan(**place)) == says


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ({"kind": "hostfile"}, "place.hostfile: name the file that lists the hosts"),
        ({"kind": "hostfile", "hostfile": "  "}, "place.hostfile: name the file that lists the hosts"),
        ({**ON_HOSTS, "include": "a", "exclude": "b"}, "place.exclude: has no meaning beside place.include"),
        ({**ON_HOSTS, "include": " "}, "place.include: names no host"),
        ({**ON_HOSTS, "include": "n1:x@"}, "place.include: "),
        ({**ON_HOSTS, "include": "n1:0,1", "ranks": 3}, "place.ranks: 3 ranks, but include names 2 slots"),
        ({"kind": "pernode"}, "place.nodes: is missing"),
        ({**ON_NODES, "ranks": 3}, "place.ranks: 3 ranks cannot be shared alike"),
        ({**ON_HOSTS, "master_addr": "a b"}, "place.master_addr: 'a b' is no name or address"),
        ({**ON_HOSTS, "master_addr": "-x"}, "place.master_addr: '-x' is no name or address"),
        ({**ON_HOSTS, "interface": "eth 0"}, "place.interface: 'eth 0' is not NCCL's grammar"),
        ({**ON_HOSTS, "interface": "a" * 16}, "place.interface: "),
        ({**ON_HOSTS, "python": "./venv/bin/python"}, "place.python: './venv/bin/python' is looked for on every host"),
        ({**ON_HOSTS, "ssh_args": ["node1"]}, "place.ssh_args[0]: 'node1' is no option of ssh, which would take it for a host"),
        ({**ON_HOSTS, "ssh_args": ["-p"]}, "place.ssh_args: '-p' is not followed by its value"),
        ({**ON_HOSTS, "ssh_args": ["-p", "22", "-vf"]}, "place.ssh_args[2]: -f would keep ssh from starting the agent"),
        ({**ON_HOSTS, "ssh_args": ["-W", "a:1"]}, "place.ssh_args[0]: -W would keep ssh from starting the agent"),
    ],
)
def test_what_many_hosts_cannot_have(place: dict[str, Any], says: str) -> None:
    assert refused(plan(**place)).startswith(says)


@pytest.mark.parametrize(
    "place",
    [
        {**ON_HOSTS, "ssh_args": ["-p", "2222", "-oStrictHostKeyChecking=no", "-Av", "-i", "key"]},
        {**ON_HOSTS, "include": "n1@n2:0,1", "ranks": 64},
        {**ON_HOSTS, "interface": "^lo,docker", "python": "/opt/venv/bin/python", "master_addr": "fe80::1%eth0"},
        {**ON_NODES, "ranks": 4, "interface": "=eth0", "python": "python3.11"},
    ],
)
def test_what_they_can_have(place: dict[str, Any]) -> None:
    check_keys_of_kind(plan(**place))
    check_hosts(plan(**place))


def test_a_plain_program_runs_on_one_machine() -> None:
    assert refused(plan("command", **ON_NODES)).startswith("launcher.kind: 'command' starts one program on this machine")
