"""Hosts and ranks in `plan show`."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from seatrial.cli.plan_hosts import first_share, is_unknown, print_hosts, rank_span
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.command import Node
from seatrial.records.run_spec import HostSpec, PlaceSpec, RunSpec
from tests.unit.launch.factory import allocation_for, make_spec

HOSTS = (HostSpec(name="node1", ranks=2, devices=("0", "1")), HostSpec(name="node2", ranks=1, devices=("3",)))
ON_HOSTS = PlaceSpec(kind="hostfile", hostfile="hosts", ranks=3, hosts=HOSTS)


def run_on(place: PlaceSpec) -> RunSpec:
    return replace(make_spec("/"), place=place)


def shown(*places: PlaceSpec) -> str:
    text = io.StringIO()
    print_hosts(Console(file=text, width=100), CampaignPlan(name="x", output="/out", runs=tuple(map(run_on, places))))
    return text.getvalue()


@pytest.mark.parametrize(("ranks", "text"), [(1, "4"), (2, "4-5"), (8, "4-11")])
def test_the_ranks_of_a_node(ranks: int, text: str) -> None:
    assert rank_span(Node(name="n", node_rank=1, first_rank=4, ranks=ranks)) == text


def test_a_run_on_this_machine_shows_nothing() -> None:
    assert shown(PlaceSpec()) == ""


def test_a_table_for_each_way_in_which_ranks_lie_on_hosts() -> None:
    lines = shown(ON_HOSTS, ON_HOSTS, PlaceSpec()).splitlines()
    assert lines[0] == "hosts: 3 ranks on 2 hosts of hosts"
    assert [line.split() for line in lines[1:4]] == [
        ["host", "node_rank", "ranks", "devices"],
        ["node1", "0", "0-1", "0,1"],
        ["node2", "1", "2", "3"],
    ]
    assert len(lines) == 4, "once for both runs"


def test_a_hostfile_that_cannot_be_read_here_is_said() -> None:
    unknown = PlaceSpec(kind="hostfile", hostfile="gone", ranks=8)
    assert is_unknown(unknown) and not is_unknown(ON_HOSTS) and not is_unknown(PlaceSpec())
    assert shown(unknown) == "hosts: gone cannot be read here, so which host has which of the 8 ranks is not known\n"


def test_the_command_that_is_shown_is_node_0s(tmp_path: Path) -> None:
    spec = run_on(ON_HOSTS)
    share = first_share(allocation_for(spec), spec)
    assert [node.name for node in share.nodes] == ["node1", "node2"] and share.master_addr == "node1"
    assert first_share(allocation_for(spec), run_on(replace(ON_HOSTS, master_addr="10.0.0.1"))).master_addr == "10.0.0.1"
    local = run_on(PlaceSpec())
    given = allocation_for(local)
    assert first_share(given, local) is given
