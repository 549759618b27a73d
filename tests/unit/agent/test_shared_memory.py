"""Shared memory of a run that is over: removed, told of, and let alone where nobody knows what stood there before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.agent import shared_memory
from seatrial.agent.shared_memory import remove_left_behind
from tests.unit.agent.runs import order_for


def _left(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    monkeypatch.setattr(shared_memory, "left_behind", lambda before: list(paths))


def test_what_is_left_is_removed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    segments = [tmp_path / "torch_1_a", tmp_path / "nccl-b"]
    for segment in segments:
        segment.touch()
    _left(monkeypatch, *segments)
    assert remove_left_behind(order_for(tmp_path, "")) == 2 and not any(segment.exists() for segment in segments)
    assert capfd.readouterr().err.count("shared memory that the run left behind") == 2


def test_nothing_is_removed_where_nobody_knows_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = tmp_path / "torch_1_a"
    segment.touch()
    _left(monkeypatch, segment)
    assert remove_left_behind(replace(order_for(tmp_path, ""), shared_memory=None)) == 0 and segment.exists()


def test_one_that_cannot_be_removed_is_left_to_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gone, there = tmp_path / "torch_1_gone", tmp_path / "torch_1_there"
    there.touch()
    _left(monkeypatch, gone, there)
    assert remove_left_behind(order_for(tmp_path, "")) == 1
    assert "could not be removed (No such file or directory); remove it by hand" in capfd.readouterr().err
