"""Hosts and GPUs there are, and what of them a number of ranks takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.plan.placing import Ground, ground_of, place_on
from seatrial.plan.schema import Axis, Place, Plan, Workload
from seatrial.records.run_spec import HostSpec

HOSTS = (HostSpec(name="n1", ranks=2), HostSpec(name="n2", ranks=2))


def plan(axes: dict[str, Axis] | None = None, **place: Any) -> Plan:
    return Plan(name="x", workload=Workload(module="dummy"), place=Place(**place), axes=axes or {})


@pytest.fixture
def hostfile(tmp_path: Path) -> Path:
    (tmp_path / "hosts").write_text("n1 slots=2\nn2 slots=2\n")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "ground"),
    [
        ({}, Ground(ranks=1)),
        ({"ranks": 3}, Ground(ranks=3)),
        ({"include": "localhost:2,3"}, Ground(ranks=2, devices=("2", "3"))),
        ({"kind": "pernode", "nodes": 4}, Ground(ranks=4)),
        ({"kind": "pernode", "nodes": 4, "include": "localhost:0,1"}, Ground(ranks=8, devices=("0", "1"))),
    ],
)
def test_what_this_machine_or_each_node_has(place: dict[str, Any], ground: Ground, tmp_path: Path) -> None:
    assert ground_of(plan(**place), tmp_path) == ground


def test_a_hostfile_gives_all_its_slots(hostfile: Path) -> None:
    found = ground_of(plan(kind="hostfile", hostfile="hosts"), hostfile)
    assert found.ranks == 4 and [host.name for host in found.hosts] == ["n1", "n2"]
    assert ground_of(plan(kind="hostfile", hostfile="hosts", ranks=3), hostfile).ranks == 3
    assert [host.name for host in ground_of(plan(kind="hostfile", hostfile="hosts", exclude="n1"), hostfile).hosts] == ["n2"]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ({"include": "n3"}, r"^place.include: .*n3.*\(hosts\)$"),
        ({"exclude": "n1@n2"}, r"^place.exclude: .*\(hosts\)$"),
    ],
)
def test_a_choice_that_the_hostfile_has_not_names_its_key(hostfile: Path, place: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        ground_of(plan(kind="hostfile", hostfile="hosts", **place), hostfile)


def test_a_hostfile_that_is_not_here_leaves_the_hosts_open_where_the_ranks_are_known(tmp_path: Path) -> None:
    gone: dict[str, Any] = {"kind": "hostfile", "hostfile": "gone"}
    assert ground_of(plan(**gone, ranks=8), tmp_path) == Ground(ranks=8)
    assert ground_of(plan(**gone, include="n1:0,1@n2:0"), tmp_path) == Ground(ranks=3)
    assert ground_of(plan({"place.ranks": Axis(values=[2, 4])}, **gone), tmp_path) == Ground(ranks=1)
    with pytest.raises(PlanError, match=r"^place.hostfile: .*`plan show` works without it where place.ranks says"):
        ground_of(plan(**gone), tmp_path)


def test_the_first_hosts_and_gpus_are_taken() -> None:
    asked = plan(kind="hostfile", hostfile="hosts", include="n1@n2", ssh_args=["-p", "22"], port=29500)
    placed = place_on(asked, Ground(ranks=4, hosts=HOSTS), 3)
    assert [(host.name, host.ranks) for host in placed.hosts] == [("n1", 2), ("n2", 1)]
    assert (placed.kind, placed.ranks, placed.include, placed.ssh_args, placed.port) == ("hostfile", 3, "n1@n2", ("-p", "22"), 29500)
    local = place_on(plan(include="localhost:4,5"), Ground(ranks=2, devices=("4", "5")), 1)
    assert (local.devices, local.include, local.nodes) == (("4",), "", 1)
    shared = place_on(plan(kind="pernode", nodes=2), Ground(ranks=4, devices=("0", "1")), 4)
    assert (shared.devices, shared.nodes) == (("0", "1"), 2)


@pytest.mark.parametrize(
    ("asked", "ground", "ranks", "says"),
    [
        (plan(include="localhost:0"), Ground(ranks=1, devices=("0",)), 2, "place.ranks: 2 ranks, but include names 1 GPUs"),
        (plan(kind="pernode", nodes=2), Ground(ranks=2), 3, "place.ranks: 3 ranks cannot be shared alike by 2 nodes"),
        (plan(kind="hostfile", hostfile="hosts"), Ground(ranks=4, hosts=HOSTS), 5, r"place.ranks: .*\(hosts\)$"),
        (plan({"place.ranks": Axis(values=[1, 3])}, kind="pernode", nodes=2), Ground(ranks=2), 3, "axes.place.ranks: 3 ranks"),
    ],
)
def test_more_than_there_is_room_for_is_refused_at_the_key_that_asks(asked: Plan, ground: Ground, ranks: int, says: str) -> None:
    with pytest.raises(PlanError, match=f"^{says}"):
        place_on(asked, ground, ranks)
