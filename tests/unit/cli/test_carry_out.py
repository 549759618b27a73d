"""What `run` and `sweep` share after the plan is read: which part is this command's, what is said at the end, the exit code."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.campaign.all_runs import CampaignEnd
from seatrial.campaign.results import remake
from seatrial.cli import carry_out as module
from seatrial.cli.carry_out import carry_out, carry_out_here, last_line
from seatrial.cli.live_view import PlainView
from seatrial.cli.pernode import NodeWords, ThisNode
from seatrial.errors import UsageError
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan
from tests.unit.campaign.made_campaign import write_campaign


def plan(out: Path, **place: Any) -> CampaignPlan:
    mapping = {"name": "x", "workload": "dummy", "axes": {"micro_batch": [8, 16]}, "steps": 3, "output": str(out), "place": place}
    return resolve(plan_from_mapping(mapping, "test"), source="test", cwd=out)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """A campaign that is over: `end` is how its runs ended, the folder is one that the harness left. No run is started."""
    said: dict[str, Any] = {"end": CampaignEnd(), "out": write_campaign(tmp_path / "out").folder}

    def run_all(asked: CampaignPlan, listener: Any, **how: Any) -> CampaignEnd:
        said.update(asked=asked, **how)
        end = said["end"]
        assert isinstance(end, CampaignEnd)
        return end

    monkeypatch.setattr(module, "run_all", run_all)
    monkeypatch.setenv("COLUMNS", "200")
    return said


def test_the_exit_code_is_the_verdicts(ends: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert carry_out(plan(ends["out"]), as_json=True, again=True) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "FAIL" and "Verdict: FAIL" in said.err
    assert ends["again"] is True and ends["gate"] is None


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (CampaignEnd(interrupted=True, left=2), 130, "interrupted: 2 of 2 runs are still to be run; the same command resumes."),
        (CampaignEnd(stopped_on_error=True, left=1), 2, "stopped at the first failure (stop_on_error): 1 of 2 runs"),
        (CampaignEnd(out_of_budget=True, left=1), 2, "the budget is used up: 1 of 2 runs"),
        (CampaignEnd(disk_trouble="/x: full", left=1), 1, "no further run could be prepared (/x: full): mend that disk first: 1 of 2 runs"),
    ],
)
def test_what_is_left_is_said(ends: dict[str, Any], end: CampaignEnd, code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    ends["end"] = end
    assert carry_out(plan(ends["out"])) == code
    assert says in capsys.readouterr().out


def test_a_part_of_the_plan_is_said_to_be_one(ends: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked = plan(ends["out"])
    run = asked.runs[0].run
    carry_out(resolve_only(ends["out"], run))
    assert "--only: 1 of the plan's 2 runs were asked for" in capsys.readouterr().out


def resolve_only(out: Path, run: str) -> CampaignPlan:
    mapping = {"name": "x", "workload": "dummy", "axes": {"micro_batch": [8, 16]}, "steps": 3, "output": str(out)}
    return resolve(plan_from_mapping(mapping, "test"), source="test", cwd=out, only=[run])


def test_the_view_gets_the_heartbeat_that_was_asked_for(ends: dict[str, Any]) -> None:
    asked: list[float | None] = []

    @contextlib.contextmanager
    def view(console: Console, heartbeat_s: float | None) -> Iterator[PlainView]:
        asked.append(heartbeat_s)
        yield PlainView(console)

    carry_out(plan(ends["out"]), view=view, heartbeat_s=5.0)
    assert asked == [5.0]


def test_the_machines_line_has_the_verdict_the_winner_and_where_the_rest_is(tmp_path: Path) -> None:
    results = remake(write_campaign(tmp_path / "out").folder)
    line = last_line(results)
    assert line["verdict"] == "FAIL" and line["report"] == str(tmp_path / "out" / "summary.md")
    assert set(line) == {"verdict", "winner", "decided", "metric", "latency_winner", "ranking", "pending", "report"}
    json.dumps(line)


@pytest.mark.parametrize(("rank", "does"), [(0, "carry_out"), (1, "take_part")])
def test_a_command_does_its_nodes_part(tmp_path: Path, rank: int, does: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, ThisNode | None]] = []
    monkeypatch.setattr(module, "carry_out", lambda plan, *, here, **how: done.append(("carry_out", here)) or 7)
    monkeypatch.setattr(module, "take_part", lambda plan, here, **how: done.append(("take_part", here)) or 7)
    words = NodeWords(rank=rank, address="head", port=29500)
    assert carry_out_here(plan(tmp_path, kind="pernode", nodes=2), words, as_json=False, yes=True) == 7
    assert done == [(does, ThisNode(rank=rank, nodes=2, address="head", port=29500))]


def test_on_one_machine_there_is_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[ThisNode | None] = []
    monkeypatch.setattr(module, "carry_out", lambda plan, *, here, **how: done.append(here) or 0)
    carry_out_here(plan(tmp_path), NodeWords(), as_json=False)
    assert done == [None]
    with pytest.raises(UsageError, match="--node-rank belongs to a plan with"):
        carry_out_here(plan(tmp_path), NodeWords(rank=1), as_json=False)
