"""Which node of a campaign without ssh a command is, and what is refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.pernode import NodeWords, ThisNode, command_for, refuse_another_s_address, refuse_folder_of_the_moment, this_node
from seatrial.cli.sweep import on_nodes
from seatrial.errors import UsageError
from seatrial.launch.gate_file import plan_digest
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan

ALL = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500", "GROUP_RANK": "5"}


def plan_of(**place: Any) -> CampaignPlan:
    mapping = {"name": "demo", "workload": "dummy", "launcher": "python", "steps": 5, "place": place or {"kind": "pernode", "nodes": 2}}
    return resolve(plan_from_mapping(mapping, "test"), source="test", cwd=Path.cwd())


def test_what_was_typed_counts_before_the_environment() -> None:
    assert this_node(plan_of(), NodeWords(), ALL) == ThisNode(rank=1, nodes=2, address="10.0.0.7", port=29500)
    typed = NodeWords(rank=0, address="head", port=1234)
    assert this_node(plan_of(), typed, ALL) == ThisNode(rank=0, nodes=2, address="head", port=1234)
    assert this_node(plan_of(), NodeWords(rank=1), {}) == ThisNode(rank=1, nodes=2), "another node finds node 0 by the folder"


def test_another_place_has_no_nodes() -> None:
    assert this_node(plan_of(kind="local"), NodeWords(), ALL) is None, "what a job's environment holds is not meant for it"
    for typed, option in (
        (NodeWords(rank=0), "--node-rank"),
        (NodeWords(address="h"), "--master-addr"),
        (NodeWords(port=5), "--master-port"),
    ):
        with pytest.raises(UsageError, match=rf"{option} belongs to .* place of this one is local.*--set place\.kind=pernode"):
            this_node(plan_of(kind="local"), typed, {})


@pytest.mark.parametrize(
    ("typed", "environ", "said"),
    [
        (NodeWords(), {"GROUP_RANK": "1"}, "say which this is: --node-rank R --master-addr HOST --master-port PORT, with R from 0 to 1"),
        (NodeWords(rank=2), {}, "--node-rank 2: the plan has 2 nodes"),
        (NodeWords(rank=0), {}, "node 0 needs --master-addr HOST --master-port PORT"),
        (NodeWords(rank=0, address="head"), {}, "node 0 needs"),
        (NodeWords(), {"NODE_RANK": "one"}, "the variable NODE_RANK is 'one'"),
        (NodeWords(rank=1), {"MASTER_PORT": "99999"}, "the variable MASTER_PORT is '99999'"),
        (NodeWords(rank=0), {"MASTER_PORT": "²"}, "the variable MASTER_PORT"),
    ],
)
def test_what_cannot_be_told_is_asked_for(typed: NodeWords, environ: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        this_node(plan_of(), typed, environ)


def test_commands_and_ranks_meet_at_two_ports() -> None:
    with pytest.raises(UsageError, match="choose two different ports"):
        this_node(plan_of(kind="pernode", nodes=2, port=29500), NodeWords(rank=0, address="h", port=29500), {})


def test_what_to_type_on_another_node_is_what_was_typed_here() -> None:
    here = ThisNode(rank=0, nodes=2, address="10.0.0.7", port=29500)
    typed = ["run", "my plan.yaml", "--node_rank", "0", "--master-addr=10.0.0.7", "--master_port", "29500", "--set", "steps=5"]
    ours = "--node-rank 1 --master-addr 10.0.0.7 --master-port 29500"
    assert command_for(1, here, typed) == f"seatrial run 'my plan.yaml' --set steps=5 {ours}"
    typed = ["sweep", "--nodes", "2", "-P", "bs=8,16", "--", "deepspeed", "--node_rank", "0"]
    assert command_for(1, here, typed) == f"seatrial sweep --nodes 2 -P bs=8,16 {ours} -- deepspeed --node_rank 0"


def test_a_folder_named_by_the_time_is_not_one_folder() -> None:
    with pytest.raises(UsageError, match="--out"):
        refuse_folder_of_the_moment("pernode", "outputs/{time}")
    refuse_folder_of_the_moment("local", "outputs/{time}")
    refuse_folder_of_the_moment("pernode", None)


def test_the_digest_is_of_what_is_run() -> None:
    plan = plan_of()
    assert plan_digest(plan) == plan_digest(replace(plan, output="/elsewhere", budget_s=5.0, selected=("r1",)))
    assert plan_digest(plan) != plan_digest(plan_of(kind="pernode", nodes=3))
    (spec,) = plan.runs
    assert plan_digest(plan) != plan_digest(replace(plan, runs=(replace(spec, hash="another script"),)))


def test_a_swept_command_is_one_nodes_share() -> None:
    mapping = {"place": {"kind": "local", "ranks": 2}, "output": "outputs/sweep-train", "axes": {"bs": [8]}}
    swept = on_nodes(mapping, 3, is_own_folder=False)
    assert swept["place"] == {"kind": "pernode", "nodes": 3, "ranks": 6} and swept["output"] == "outputs/sweep-train-3-nodes"
    assert on_nodes(mapping, 3, is_own_folder=True)["output"] == "outputs/sweep-train"
    assert on_nodes({**mapping, "place": {"kind": "local"}}, 2, is_own_folder=True)["place"] == {"kind": "pernode", "nodes": 2}
    with pytest.raises(UsageError, match="--nodes needs a number of ranks"):
        on_nodes({**mapping, "axes": {"place.ranks": {"values": [1, 2]}}}, 2, is_own_folder=True)


def test_the_command_line_takes_both_spellings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("{name: demo, workload: dummy, launcher: python, steps: 5}")
    for word in ("--node-rank", "--node_rank"):
        assert run_command(["run", str(plan), word, "1"]) == 1
        assert "--node-rank belongs to a plan with" in capsys.readouterr().err
    ours = ["--set", "place.kind=pernode", "--set", "place.nodes=2"]
    assert run_command(["run", str(plan), *ours, "--node_rank", "5", "--master_addr", "h", "--master_port", "29500"]) == 1
    assert "--node-rank 5: the plan has 2 nodes" in capsys.readouterr().err
    assert run_command(["sweep", "--nodes", "2", "--node-rank", "2", "--", "python", "train.py"]) == 1
    assert "--node-rank 2: the plan has 2 nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "words"), [("no.such.host.invalid", "means nothing on this host"), ("192.0.2.77", "no address of this host")]
)
def test_node_0_is_where_the_address_is(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        refuse_another_s_address(address)
    refuse_another_s_address("127.0.0.1")
