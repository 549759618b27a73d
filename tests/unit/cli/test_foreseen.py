"""Criteria that cannot pass, told before anything is run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.cli import foreseen
from seatrial.cli.foreseen import say_what_cannot_pass
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve


def said(out: Path, *criteria: dict[str, Any], **keys: Any) -> str:
    mapping = {"name": "x", "workload": "dummy", "criteria": list(criteria), "output": str(out), **keys}
    text = io.StringIO()
    say_what_cannot_pass(resolve(plan_from_mapping(mapping, "test"), source="test", cwd=out), Console(file=text, width=300))
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
    assert foreseen.__doc__
