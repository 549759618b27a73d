"""One attempt from start to nothing left, told by its reports: the loop itself, with a harness of the test's own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.agent.supervise import GIVE_UP_S, Supervisor
from seatrial.launch.own_programs import AGENT_ENDS_WITHIN_S
from seatrial.records.command import AgentOrder, AgentReport
from seatrial.records.line import LEASE_S
from tests.unit.agent.apart import FakeHarness, apart
from tests.unit.agent.runs import attempt_of, order_for


def _order(folder: Path, *scripts: str) -> AgentOrder:
    """One process for each text of a shell."""
    order = order_for(folder, "", ranks=len(scripts))
    overlays = tuple({"RANK": str(rank), "TEXT": text} for rank, text in enumerate(scripts))
    return replace(order, command=replace(order.command, argv=("sh", "-c", 'eval "$TEXT"'), ranks=overlays))


def _reports(order: AgentOrder, *words: str, ended: str = "") -> list[AgentReport]:
    def act() -> Any:
        harness = FakeHarness(*words, ended=ended)
        Supervisor(order, os.environ, harness=harness).run()
        return [vars(report) for report in harness.sent]

    return [AgentReport(**told) for told in apart(act)]


def test_a_run_that_ends_well(tmp_path: Path) -> None:
    order = _order(tmp_path, "echo one", "echo two")
    started, also, exited, gone = _reports(order)
    assert [report.kind for report in (started, also, exited, gone)] == ["started", "started", "exited", "gone"]
    assert started.pid and also.pid and started.pid != also.pid
    assert exited.returncode == 0 and gone.killed == 0 and gone.detail == ""
    assert sorted(attempt_of(order).launcher_log.read_text().splitlines()) == ["[rank0]: one", "[rank1]: two"]


@pytest.mark.parametrize(("first", "second", "code"), [("exit 3", "exit 3", 3), ("exit 1", "kill -9 $$", -9), ("true", "exit 1", 1)])
def test_the_most_telling_code_is_the_runs(tmp_path: Path, first: str, second: str, code: int) -> None:
    exited = next(report for report in _reports(_order(tmp_path, first, second)) if report.kind == "exited")
    assert exited.returncode == code


def test_what_cannot_be_started_is_an_exit_and_a_sentence(tmp_path: Path) -> None:
    order = order_for(tmp_path, "")
    exited, gone = _reports(replace(order, command=replace(order.command, argv=("/no/such/program",))))
    assert (exited.kind, exited.returncode, gone.kind) == ("exited", 127, "gone") and "could not be started" in exited.detail


@pytest.mark.parametrize(("words", "ended"), [(("kill",), ""), ((), "the harness ended")])
def test_told_to_kill_or_alone_it_leaves_nothing(tmp_path: Path, words: tuple[str, ...], ended: str) -> None:
    reports = _reports(_order(tmp_path, "trap '' TERM; sleep 600"), *words, ended=ended)
    assert [report.kind for report in reports] == ["started", "exited", "gone"]
    assert reports[1].returncode == -9 and reports[2].killed >= 1


def test_the_harness_is_more_patient_than_the_agent() -> None:
    assert AGENT_ENDS_WITHIN_S > GIVE_UP_S and AGENT_ENDS_WITHIN_S > LEASE_S
