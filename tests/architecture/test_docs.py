"""The docs match the code: verbs, plans and generated pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.cli.main import VERBS, run_command

ROOT = Path(__file__).parents[2]
PLANS = sorted((ROOT / "plans").rglob("*.yaml"))


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_two_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([verb, *(["show"] if verb == "plan" else []), "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert len(re.findall(r"seatrial [a-z]+ ", text.split("╰")[-1])) >= 2


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run([sys.executable, "docs/make_pages.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan.relative_to(ROOT / "plans").with_suffix("")))
def test_every_plan_parses_expands_and_dry_runs(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "show", str(plan)]) == 0
    assert "runs" in capsys.readouterr().out
