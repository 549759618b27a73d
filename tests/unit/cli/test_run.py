"""`seatrial run`: what was typed reaches what carries it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.cli import carry_out
from seatrial.cli import run as run_verb
from seatrial.cli.main import run_command
from seatrial.cli.pernode import NodeWords


def test_the_verb_hands_on_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(carry_out, "carry_out_here", lambda plan, words, **how: asked.update(plan=plan, words=words, **how) or 3)
    (tmp_path / "p.yaml").write_text("name: x\nworkload: dummy\n")
    options = ["--again", "--yes", "--json", "--track", "mlflow", "--heartbeat", "5", "--set", "repeats=2", "--out", str(tmp_path / "o")]
    assert run_command(["run", str(tmp_path / "p.yaml"), *options]) == 3
    assert len(asked["plan"].runs) == 2 and asked["plan"].output == str(tmp_path / "o")
    how = {"yes": True, "as_json": True, "track": ["mlflow"], "heartbeat_s": 5.0, "again": True}
    assert {name: asked[name] for name in how} == how and asked["words"] == NodeWords()
    assert run_verb.EXAMPLES.count("seatrial run") == 2
