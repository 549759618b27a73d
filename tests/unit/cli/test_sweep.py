"""`sweep` and `init`: commands instead of plan files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli import run
from seatrial.cli.main import run_command
from seatrial.cli.pernode import NodeOptions
from seatrial.cli.run import RunOptions
from seatrial.cli.sweep import parse_axes
from seatrial.core.errors import UsageError
from seatrial.observe.watchdog import name_options
from seatrial.plan.load import load_plan
from seatrial.records.plan import StallSpec


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("bs=8,16", [8, 16]),
        ("x=0.5,true,false,null,sgd", [0.5, True, False, None, "sgd"]),
        ("v=1.10,007,1e3,0x1F,+5,-0", ["1.10", "007", "1e3", "0x1F", "+5", "-0"]),
        ("lr=1e-3,3e-4", ["1e-3", "3e-4"]),
        ("x='8',\"a,b\"", ["8", "a,b"]),
        ("x=[8, 16]", [8, 16]),
    ],
)
def test_values(text: str, values: list[Any]) -> None:
    (found,) = parse_axes([text]).values()
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]


@pytest.mark.parametrize("parameters", [["bs"], ["=8"], ["bs=8", "bs=16"]])
def test_what_is_no_axis_is_reported(parameters: list[str]) -> None:
    with pytest.raises(UsageError, match="-P"):
        parse_axes(parameters)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be carried out."""
    found: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "execute_on_this_node", lambda plan, node, how: found.update(plan=plan, node=node, how=how) or 3)
    return found


def test_what_was_typed_becomes_a_plan(asked: dict[str, Any], tmp_path: Path) -> None:
    options = ["-P", "bs=8,16", "--repeats", "2", "--steps", "50", "--run-limit", "15m", "--env", "A=b", "--budget", "1h", "--seed", "3"]
    assert run_command(["sweep", *options, "--out", "o", "--", "python", "train.py", "--bs", "{bs}"]) == 3
    plan = asked["plan"]
    assert (len(plan.runs), plan.axes, plan.budget_s, plan.seed) == (4, {"bs": (8, 16)}, 3600.0, 3)
    assert plan.output == str(tmp_path / "o") and plan.source == "seatrial sweep -- python train.py --bs '{bs}'"
    first = plan.runs[0]
    assert (first.steps, first.limits.run_s, first.env) == (50, 900.0, {"A": "b"})
    assert asked["node"] == NodeOptions() and asked["how"] == RunOptions()


def test_limits_of_silence_are_options_that_change_no_hash(asked: dict[str, Any]) -> None:
    run_command(["sweep", "-P", "bs=8", "--", "python", "t.py", "--bs", "{bs}"])
    plain = asked["plan"].runs[0]
    run_command(["sweep", "-P", "bs=8", "--quiet-limit", "2m", "--stall-factor", "5", "--", "python", "t.py", "--bs", "{bs}"])
    limited = asked["plan"].runs[0]
    assert limited.limits.stall == StallSpec(quiet_s=120.0, factor=5.0)
    assert limited.hash == plain.hash and plain.limits.stall == StallSpec()
    assert name_options("raise limits.stall.quiet_s", limited) == "raise --quiet-limit"
    assert name_options("raise limits.stall.quiet_s", replace(limited, from_sweep=False)) == "raise limits.stall.quiet_s"


def test_the_same_line_has_the_same_folder_and_another_on_nodes(asked: dict[str, Any]) -> None:
    line = ["--", "torchrun", "--nproc_per_node", "2", "train.py"]
    run_command(["sweep", *line])
    alone = asked["plan"].output
    run_command(["sweep", *line])
    assert asked["plan"].output == alone
    run_command(["sweep", "--nodes", "3", "--node-rank", "1", *line])
    place = asked["plan"].runs[0].place
    assert asked["plan"].output == f"{alone}-3-nodes" and (place.kind, place.nodes, place.ranks) == ("pernode", 3, 6)
    assert asked["node"].rank == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "A"], "--env A: write --env NAME=VALUE"),
        (["--budget", "soon"], "--budget: 'soon' is not a duration"),
        (["--start-limit", "0"], "--start-limit 0: a limit must be positive"),
        (["--nodes", "2", "--out", "o-{time}"], "has {time} in it"),
        (["--only", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_is_reported_and_nothing_is_carried_out(
    words: list[str], says: str, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["sweep", *words, "--", "python", "train.py"]) == 1
    assert says in capsys.readouterr().err and asked == {}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_plan_that_loads(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "-o", "mine.yaml", "--", "torchrun", "--nproc_per_node", "2", "train.py", "--bs", "8"]) == 0
    assert capsys.readouterr().out.startswith("wrote mine.yaml\nnext: give it axes")
    plan = load_plan(here / "mine.yaml")
    assert (plan.launcher.kind, plan.place.ranks, plan.workload.args, plan.repeats) == ("torchrun", 2, ["--bs", "8"], 3)


def test_init_overwrites_nothing_unasked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan.yaml").write_text("mine")
    (here / "folder").mkdir()
    for words, says in (
        ([], "plan.yaml exists already: choose another name with -o, or overwrite it with --force"),
        (["-o", "folder"], "folder is a folder: name the file to write in it, as in -o folder/plan.yaml"),
        (["-o", "no/such.yaml"], "there is no folder no to write such.yaml to"),
    ):
        assert run_command(["init", *words, "--", "python", "train.py"]) == 1
        assert says in capsys.readouterr().err
    assert (here / "plan.yaml").read_text() == "mine"
    assert run_command(["init", "--force", "--", "python", "train.py"]) == 0
    assert load_plan(here / "plan.yaml").workload.script == "train.py"
