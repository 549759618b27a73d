"""`run`, from the plan to the exit code; one command on each node."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.campaign.early_end import CampaignEnd
from seatrial.cli import run
from seatrial.cli.live_view import PlainView
from seatrial.cli.main import run_command
from seatrial.cli.pernode import NodeOptions, ThisNode, command_for, require_own_address, this_node
from seatrial.cli.plan import read_plan, warn_of_impossible_criteria
from seatrial.cli.run import MAX_RUNS_WITHOUT_YES, RunOptions, execute, execute_on_this_node, refuse_unusable_output, require_yes
from seatrial.cli.sweep import on_nodes
from seatrial.core.errors import UsageError
from seatrial.launch.pernode_server import plan_digest
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.records.plan import CampaignPlan
from tests.facts import states
from tests.unit.results.campaigns import write_campaign


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.yaml"
    path.write_text("name: x\nworkload: dummy\naxes: {micro_batch: [8, 16]}\nbudget: 1h\n")
    return path


def test_the_plan_alone(plan: Path, tmp_path: Path) -> None:
    found = read_plan(plan, None, None, None, None)
    assert (found.name, len(found.runs), found.selected, found.budget_s) == ("x", 2, (), 3600.0)
    assert found.output == str(tmp_path / "outputs/x") and found.source == str(plan)


def test_what_is_typed_wins(plan: Path, tmp_path: Path) -> None:
    found = read_plan(plan, ["repeats=3"], ["*mb8*"], "90s", Path("elsewhere"))
    assert (len(found.runs), len(found.chosen), found.budget_s) == (6, 3, 90.0)
    assert found.output == str(tmp_path / "elsewhere")


def test_what_cannot_be_is_reported_before_the_plan_is_read() -> None:
    with pytest.raises(UsageError, match="--budget"):
        read_plan(Path("no-such-plan.yaml"), None, None, "soon", None)


def test_a_folder_that_differs_from_node_to_node_is_refused(plan: Path) -> None:
    on_nodes = ["place={kind: pernode, nodes: 2}"]
    with pytest.raises(UsageError, match=r"has \{time\} in it, which differs from node to node"):
        read_plan(plan, [*on_nodes, "output=runs/{time}"], None, None, None)
    assert read_plan(plan, [*on_nodes, "output=runs/{time}"], None, None, Path("one")).output.endswith("/one")


def campaign(values: int, only: tuple[str, ...] = ()) -> CampaignPlan:
    mapping = {"name": "x", "workload": {"script": "t.py", "args": ["{v}"]}, "axes": {"v": list(range(values))}}
    return resolve_plan(plan_from_mapping(mapping, "test"), source="test", cwd=Path("/"), only=only)


def test_many_runs_are_requested_with_yes() -> None:
    with pytest.raises(UsageError) as caught:
        require_yes(campaign(MAX_RUNS_WITHOUT_YES + 1), yes=False)
    assert states(str(caught.value), "1,001 runs", "v (1,001 values)", "1 repeat", "--yes", "--only")
    require_yes(campaign(MAX_RUNS_WITHOUT_YES + 1), yes=True)
    require_yes(campaign(MAX_RUNS_WITHOUT_YES), yes=False)
    require_yes(campaign(MAX_RUNS_WITHOUT_YES + 1, only=("v1*",)), yes=False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("file", "{here}/file is a file"),
        ("file/a/b", "{here}/file/a/b cannot be created: {here}/file is a file"),
        ("loop", "{here}/loop cannot be used: {here}/loop: Too many levels of symbolic links"),
        ("dangling", "{here}/dangling cannot be created: {here}/dangling is a link to nowhere, which does not exist"),
        ("dangling/x", "{here}/dangling/x cannot be created: {here}/dangling is a link to nowhere, which does not exist"),
    ],
)
def test_an_output_that_cannot_be_a_folder(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(UsageError) as caught:
        refuse_unusable_output(tmp_path / name)
    assert str(caught.value) == f"the output folder {problem.format(here=tmp_path)}; choose another with --out"


def test_a_folder_that_is_there_or_can_be_made_is_fine(tmp_path: Path) -> None:
    refuse_unusable_output(tmp_path)
    refuse_unusable_output(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_out_is_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text("name: x\nworkload: dummy\n")
    assert run_command(["run", "p.yaml", "--out", ""]) == 1
    assert "it is empty; name a folder, or leave the option out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def said(out: Path, *criteria: dict[str, Any], **keys: Any) -> str:
    mapping = {"name": "x", "workload": "dummy", "criteria": list(criteria), "output": str(out), **keys}
    text = io.StringIO()
    warn_of_impossible_criteria(resolve_plan(plan_from_mapping(mapping, "test"), source="test", cwd=out), Console(file=text, width=300))
    return text.getvalue()


def test_a_plan_that_can_pass_is_not_spoken_of(tmp_path: Path) -> None:
    assert said(tmp_path, {"metric": "failed_runs", "at_most": 0}) == ""
    assert said(tmp_path) == ""


def test_one_line_for_each_that_cannot(tmp_path: Path) -> None:
    assert "stable" in said(tmp_path, {"metric": "stable"}, repeats=1)


def test_history_is_opened_only_where_a_criterion_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_HISTORY", str(tmp_path))
    assert said(tmp_path, {"metric": "failed_runs", "at_most": 0}) == "", "a folder there would be an error"
    monkeypatch.setenv("SEATRIAL_HISTORY", str(tmp_path / "h.jsonl"))
    asked = {"metric": "regression_pct", "at_most": 5, "baseline": {"history": "monday"}}
    assert "monday" in said(tmp_path, asked, axes={"micro_batch": [8]}, repeats=3)


ALL = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500", "GROUP_RANK": "5"}


def plan_of(**place: Any) -> CampaignPlan:
    mapping = {"name": "demo", "workload": "dummy", "launcher": "python", "steps": 5, "place": place or {"kind": "pernode", "nodes": 2}}
    return resolve_plan(plan_from_mapping(mapping, "test"), source="test", cwd=Path.cwd())


def test_what_was_typed_counts_before_the_environment() -> None:
    assert this_node(plan_of(), NodeOptions(), ALL) == ThisNode(rank=1, nodes=2, address="10.0.0.7", port=29500)
    typed = NodeOptions(rank=0, address="head", port=1234)
    assert this_node(plan_of(), typed, ALL) == ThisNode(rank=0, nodes=2, address="head", port=1234)
    assert this_node(plan_of(), NodeOptions(rank=1), {}) == ThisNode(rank=1, nodes=2), "another node finds node 0 by the folder"


def test_another_place_has_no_nodes() -> None:
    assert this_node(plan_of(kind="local"), NodeOptions(), ALL) is None, "what a job's environment holds is not meant for it"
    for typed, option in (
        (NodeOptions(rank=0), "--node-rank"),
        (NodeOptions(address="h"), "--master-addr"),
        (NodeOptions(port=5), "--master-port"),
    ):
        with pytest.raises(UsageError, match=rf"{option}.*local.*--set place\.kind=pernode"):
            this_node(plan_of(kind="local"), typed, {})


@pytest.mark.parametrize(
    ("typed", "environ", "said"),
    [
        (
            NodeOptions(),
            {"GROUP_RANK": "1"},
            "say which this is with --node-rank R --master-addr HOST --master-port PORT, with R from 0 to 1",
        ),
        (NodeOptions(rank=2), {}, "--node-rank 2: the plan has 2 nodes"),
        (NodeOptions(rank=0), {}, "node 0 needs --master-addr HOST --master-port PORT"),
        (NodeOptions(rank=0, address="head"), {}, "node 0 needs"),
        (NodeOptions(), {"NODE_RANK": "one"}, "the variable NODE_RANK is 'one'"),
        (NodeOptions(rank=1), {"MASTER_PORT": "99999"}, "the variable MASTER_PORT is '99999'"),
        (NodeOptions(rank=0), {"MASTER_PORT": "²"}, "the variable MASTER_PORT"),
    ],
)
def test_what_cannot_be_reported_is_requested(typed: NodeOptions, environ: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        this_node(plan_of(), typed, environ)


def test_commands_and_ranks_meet_at_two_ports() -> None:
    with pytest.raises(UsageError, match="choose two different ports"):
        this_node(plan_of(kind="pernode", nodes=2, port=29500), NodeOptions(rank=0, address="h", port=29500), {})


def test_what_to_type_on_another_node_is_what_was_typed_here() -> None:
    here = ThisNode(rank=0, nodes=2, address="10.0.0.7", port=29500)
    typed = ["run", "my plan.yaml", "--node_rank", "0", "--master-addr=10.0.0.7", "--master_port", "29500", "--set", "steps=5"]
    ours = "--node-rank 1 --master-addr 10.0.0.7 --master-port 29500"
    assert command_for(1, here, typed) == f"seatrial run 'my plan.yaml' --set steps=5 {ours}"
    typed = ["sweep", "--nodes", "2", "-P", "bs=8,16", "--", "deepspeed", "--node_rank", "0"]
    assert command_for(1, here, typed) == f"seatrial sweep --nodes 2 -P bs=8,16 {ours} -- deepspeed --node_rank 0"


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
    with pytest.raises(UsageError, match="--nodes needs a fixed number of ranks"):
        on_nodes({**mapping, "axes": {"place.ranks": {"values": [1, 2]}}}, 2, is_own_folder=True)


def test_the_command_line_takes_both_spellings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("{name: demo, workload: dummy, launcher: python, steps: 5}")
    for word in ("--node-rank", "--node_rank"):
        assert run_command(["run", str(plan), word, "1"]) == 1
        assert "--node-rank needs a plan with" in capsys.readouterr().err
    ours = ["--set", "place.kind=pernode", "--set", "place.nodes=2"]
    assert run_command(["run", str(plan), *ours, "--node_rank", "5", "--master_addr", "h", "--master_port", "29500"]) == 1
    assert "--node-rank 5: the plan has 2 nodes" in capsys.readouterr().err
    assert run_command(["sweep", "--nodes", "2", "--node-rank", "2", "--", "python", "train.py"]) == 1
    assert "--node-rank 2: the plan has 2 nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "words"), [("no.such.host.invalid", "does not resolve on this host"), ("192.0.2.77", "not an address of this host")]
)
def test_node_0_is_where_the_address_is(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        require_own_address(address)
    require_own_address("127.0.0.1")


def small_plan(out: Path, **place: Any) -> CampaignPlan:
    mapping = {"name": "x", "workload": "dummy", "axes": {"micro_batch": [8, 16]}, "steps": 3, "output": str(out), "place": place}
    return resolve_plan(plan_from_mapping(mapping, "test"), source="test", cwd=out)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """A campaign that is over: `end` is how its runs ended, the folder is one that the harness left. No run is started."""
    said: dict[str, Any] = {"end": CampaignEnd(), "out": write_campaign(tmp_path / "out").folder}

    def run_campaign(asked: CampaignPlan, listener: Any, **how: Any) -> CampaignEnd:
        said.update(asked=asked, **how)
        end = said["end"]
        assert isinstance(end, CampaignEnd)
        return end

    monkeypatch.setattr("seatrial.campaign.loop.run_campaign", run_campaign)
    monkeypatch.setenv("COLUMNS", "200")
    return said


def test_the_exit_code_is_the_verdicts(ends: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(small_plan(ends["out"]), RunOptions(as_json=True, again=True)) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "FAIL" and said.err.startswith("FAIL ")
    assert ends["again"] is True and ends["server"] is None


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (CampaignEnd(interrupted=True, left=2), 130, "interrupted: 2 of 2 runs left; run the same command to resume."),
        (CampaignEnd(stopped_on_error=True, left=1), 2, "stopped at the first failure (stop_on_error): 1 of 2 runs"),
        (CampaignEnd(out_of_budget=True, left=1), 2, "the budget is used up: 1 of 2 runs"),
        (CampaignEnd(disk_trouble="/x: full", left=1), 1, "no further run could be prepared (/x: full), fix that disk first: 1 of 2 runs"),
    ],
)
def test_what_is_left_is_reported(ends: dict[str, Any], end: CampaignEnd, code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    ends["end"] = end
    assert execute(small_plan(ends["out"]), RunOptions()) == code
    assert says in capsys.readouterr().out


def test_a_selection_is_reported(ends: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    plan = small_plan(ends["out"])
    execute(replace(plan, selected=(plan.runs[0].run,)), RunOptions())
    assert "--only: 1 of the plan's 2 runs" in capsys.readouterr().out


def test_the_view_gets_the_heartbeat_that_was_requested(ends: dict[str, Any]) -> None:
    asked: list[float | None] = []

    @contextlib.contextmanager
    def view(console: Console, heartbeat_s: float | None) -> Iterator[PlainView]:
        asked.append(heartbeat_s)
        yield PlainView(console)

    execute(small_plan(ends["out"]), RunOptions(view=view, heartbeat_s=5.0))
    assert asked == [5.0]


@pytest.mark.parametrize(("rank", "does"), [(0, "execute"), (1, "run_client_node")])
def test_a_command_does_its_nodes_part(tmp_path: Path, rank: int, does: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, ThisNode | None]] = []
    monkeypatch.setattr(run, "execute", lambda plan, how, here: done.append(("execute", here)) or 7)
    monkeypatch.setattr("seatrial.cli.pernode.run_client_node", lambda plan, here, **how: done.append(("run_client_node", here)) or 7)
    node = NodeOptions(rank=rank, address="head", port=29500)
    assert execute_on_this_node(small_plan(tmp_path, kind="pernode", nodes=2), node, RunOptions(yes=True)) == 7
    assert done == [(does, ThisNode(rank=rank, nodes=2, address="head", port=29500))]


def test_on_one_machine_there_is_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[ThisNode | None] = []
    monkeypatch.setattr(run, "execute", lambda plan, how, here: done.append(here) or 0)
    execute_on_this_node(small_plan(tmp_path), NodeOptions(), RunOptions())
    assert done == [None]
    with pytest.raises(UsageError, match="--node-rank needs a plan with"):
        execute_on_this_node(small_plan(tmp_path), NodeOptions(rank=1), RunOptions())


def test_the_verb_hands_on_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(run, "execute_on_this_node", lambda plan, node, how: asked.update(plan=plan, node=node, how=how) or 3)
    (tmp_path / "p.yaml").write_text("name: x\nworkload: dummy\n")
    options = ["--again", "--yes", "--json", "--track", "mlflow", "--heartbeat", "5", "--set", "repeats=2", "--out", str(tmp_path / "o")]
    assert run_command(["run", str(tmp_path / "p.yaml"), *options]) == 3
    assert len(asked["plan"].runs) == 2 and asked["plan"].output == str(tmp_path / "o")
    typed = RunOptions(yes=True, as_json=True, track=("mlflow",), heartbeat_s=5.0, again=True, first_line=asked["how"].first_line)
    assert asked["how"] == typed and asked["node"] == NodeOptions()
