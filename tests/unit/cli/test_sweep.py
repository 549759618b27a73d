"""`-P` values reach the command as they were typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.cli import carry_out
from seatrial.cli.main import run_command
from seatrial.cli.pernode import NodeWords
from seatrial.cli.sweep import parse_axes
from seatrial.errors import UsageError


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
def test_what_is_no_axis_is_said(parameters: list[str]) -> None:
    with pytest.raises(UsageError, match="-P"):
        parse_axes(parameters)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be carried out."""
    found: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(carry_out, "carry_out_here", lambda plan, words, **how: found.update(plan=plan, words=words, **how) or 3)
    return found


def test_what_was_typed_becomes_a_plan(asked: dict[str, Any], tmp_path: Path) -> None:
    options = ["-P", "bs=8,16", "--repeats", "2", "--steps", "50", "--run-limit", "15m", "--env", "A=b", "--budget", "1h", "--seed", "3"]
    assert run_command(["sweep", *options, "--out", "o", "--", "python", "train.py", "--bs", "{bs}"]) == 3
    plan = asked["plan"]
    assert (len(plan.runs), plan.axes, plan.budget_s, plan.seed) == (4, {"bs": (8, 16)}, 3600.0, 3)
    assert plan.output == str(tmp_path / "o") and plan.source == "seatrial sweep -- python train.py --bs '{bs}'"
    first = plan.runs[0]
    assert (first.steps, first.limits.run_s, first.env) == (50, 900.0, {"A": "b"})
    assert asked["words"] == NodeWords() and asked["yes"] is False


def test_the_same_line_has_the_same_folder_and_another_on_nodes(asked: dict[str, Any]) -> None:
    line = ["--", "torchrun", "--nproc_per_node", "2", "train.py"]
    run_command(["sweep", *line])
    alone = asked["plan"].output
    run_command(["sweep", *line])
    assert asked["plan"].output == alone
    run_command(["sweep", "--nodes", "3", "--node-rank", "1", *line])
    place = asked["plan"].runs[0].place
    assert asked["plan"].output == f"{alone}-3-nodes" and (place.kind, place.nodes, place.ranks) == ("pernode", 3, 6)
    assert asked["words"].rank == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "A"], "--env A: write --env NAME=VALUE"),
        (["--budget", "soon"], "--budget: 'soon' is not a duration"),
        (["--start-limit", "0"], "--start-limit 0: a limit of no time"),
        (["--nodes", "2", "--out", "o-{time}"], "has {time} in it"),
        (["--only", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_carried_out(
    words: list[str], says: str, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["sweep", *words, "--", "python", "train.py"]) == 1
    assert says in capsys.readouterr().err and asked == {}
