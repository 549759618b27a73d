"""One order to its end, and the way out: an error of ours is told, and a hung thread does not hold up the process."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.agent import carry_out as module
from seatrial.agent.carry_out import carry_out
from tests.unit.agent.apart import FakeHarness
from tests.unit.agent.runs import order_for


def _supervisor(monkeypatch: pytest.MonkeyPatch, run: Any = lambda: None, stuck: bool = False) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []

    def make(order: object, caller: object, **more: Any) -> SimpleNamespace:
        made.append({"order": order, "caller": caller, **more})
        return SimpleNamespace(run=run, stuck=stuck)

    monkeypatch.setattr(module, "Supervisor", make)
    return made


def _broken() -> None:
    raise RuntimeError("odd")


def test_a_run_that_was_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, order, harness = _supervisor(monkeypatch), order_for(tmp_path, ""), FakeHarness()
    assert carry_out(order, {"A": "1"}, harness) == 0
    assert made == [{"order": order, "caller": {"A": "1"}, "harness": harness, "clock": None}]
    assert harness.is_closed and not harness.failures


def test_an_error_of_ours_is_printed_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _supervisor(monkeypatch, _broken)
    harness = FakeHarness()
    assert carry_out(order_for(tmp_path, ""), {}, harness) == 1
    assert harness.failures == ["RuntimeError: odd"] and harness.is_closed and "RuntimeError: odd" in capsys.readouterr().err


@pytest.mark.parametrize(("run", "code"), [(lambda: None, 0), (_broken, 1)])
def test_a_hung_thread_takes_the_short_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, code: int) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    _supervisor(monkeypatch, run, stuck=True)
    assert carry_out(order_for(tmp_path, ""), {}, FakeHarness()) == code
    assert left == [code]
