"""Telemetry that goes wrong is noted, and costs no run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.agent.sampling import Sampling
from tests.unit.agent.runs import order_for

START = "seatrial.observe.telemetry.start_telemetry"


def _broken(*arguments: object) -> None:
    raise RuntimeError("odd")


def test_before_it_starts_there_is_nothing_to_stop() -> None:
    sampling = Sampling()
    sampling.stop()
    sampling.finish()
    assert not sampling.stuck


def test_it_is_started_stopped_and_finished_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    fake = SimpleNamespace(stop=lambda: done.append("stop"), finish=lambda: done.append("finish"), stuck=True)
    order = order_for(tmp_path, "")
    monkeypatch.setattr(START, lambda *told: done.append(told) or fake)
    sampling = Sampling()
    sampling.start(order, {"A": "1"})
    sampling.stop()
    sampling.finish()
    assert done == [(order, {"A": "1"}), "stop", "finish"] and sampling.stuck


def test_a_start_that_fails_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(START, _broken)
    sampling = Sampling()
    sampling.start(order_for(tmp_path, ""), {})
    sampling.stop()
    sampling.finish()
    assert "telemetry did not start (RuntimeError: odd); the run goes on without it" in capfd.readouterr().err


def test_an_end_that_fails_does_not_cost_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(START, lambda *told: SimpleNamespace(finish=_broken))
    sampling = Sampling()
    sampling.start(order_for(tmp_path, ""), {})
    sampling.finish()
    assert "telemetry.json was not written (RuntimeError: odd)" in capfd.readouterr().err
