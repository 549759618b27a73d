"""`seatrial plan show` and `seatrial plan criteria`: sentinels, what must hold, and what can be asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.plan import SCHEMA_EXAMPLES, schema

PLAN = """\
name: x
workload: dummy
axes: {micro_batch: [8, 16]}
order: rounds
sentinel: {every: 1, group: mb16}
criteria:
  - {metric: startup_s, at_most: 2, unit: min}
  - {ready: stage1_regression, baseline: {history: last-good}}
"""


ON_HOSTS = """\
name: x
workload: dummy
place:
  kind: hostfile
  hostfile: hosts
  exclude: "node2:2"
"""


def test_sentinels_stand_among_the_commands_and_not_in_the_matrix(
    plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # They look at this machine, which takes seconds and has tests of its own.
    monkeypatch.setattr("seatrial.cli.plan._print_refusals", lambda console, plan: None)
    assert run_command(["plan", "show", str(plan_file(PLAN))]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("x: 2 groups, 2 runs, ")
    assert lines[1] == "sentinel: mb16 again, 3 times: first, after every 1 runs, and last"
    assert [line.split()[1] for line in lines if line[:4].strip().isdigit()] == [
        "sentinel_r1",
        "mb8_r1",
        "sentinel_r2",
        "mb16_r1",
        "sentinel_r3",
    ]
    assert [line for line in lines if line.startswith("must hold: ")] == [
        "must hold: startup_s at most 120 s (every_run)",
        "must hold: failed_runs at most 0 runs (campaign), from stage1_regression",
        "must hold: regression_pct at most 3 % (every_group) against history:last-good, from stage1_regression",
        "must hold: loss_comparable holds (winner) against history:last-good, from stage1_regression",
        "must hold: loss_finite holds (every_run), from stage1_regression",
    ]


def _shown(text: str, plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run_command(["plan", "show", str(plan_file(text))]) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_which_host_has_which_ranks(
    plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.cli.plan._print_refusals", lambda console, plan: None)
    plan_file("node1 slots=2\nnode2 slots=4\n", "hosts")
    lines = _shown(ON_HOSTS, plan_file, capsys)
    at = lines.index("hosts: 5 ranks on 2 hosts of hosts")
    assert lines[at + 1 : at + 4] == [
        " host   node_rank  ranks  devices",
        " node1  0          0-1",
        " node2  1          2-4    0,1,3",
    ]
    assert "   1  base_r1 × 2 processes on node1, node 0 of 2" in lines


def test_a_hostfile_that_is_elsewhere_is_said(
    plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = _shown(f"{ON_HOSTS}  ranks: 5\n", plan_file, capsys)
    assert "hosts: hosts cannot be read here, so which host has which of the 5 ranks is not known" in lines
    assert "   1  base_r1: its commands are known where hosts can be read" in lines
    (refused,) = [line for line in lines if line.startswith("would be refused: hostfile")]
    assert (
        "hostfile hosts: " in refused and "there is no such hostfile" in refused and "with a line `node1 slots=2` for each host" in refused
    )


def test_nodes_that_type_the_command(
    plan_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.cli.plan._print_refusals", lambda console, plan: None)
    lines = _shown("name: x\nworkload: dummy\nplace: {kind: pernode, nodes: 2, include: 'localhost:0,1'}\n", plan_file, capsys)
    at = lines.index("hosts: 4 ranks on 2 hosts that type the command")
    assert [line.split() for line in lines[at + 2 : at + 4]] == [["node0", "0", "0-1", "0,1"], ["node1", "1", "2-3", "0,1"]]


def test_what_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "criteria"]) == 0
    assert "  inference_server: " in capsys.readouterr().out
    assert run_command(["plan", "criteria", "startup_s"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "  startup_s in s (every_run, every_group, winner)"
    assert run_command(["plan", "criteria", "startup"]) == 1
    assert "did you mean 'startup_s'?" in capsys.readouterr().err


def test_the_schema_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema() == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"name", "workload", "axes"} <= set(printed["properties"]) and SCHEMA_EXAMPLES.count("seatrial plan schema") == 2
