"""Ready plans and runbooks, listed and copied from where they lie in a checkout. tests/docs/test_installed.py does it with a wheel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.plan import ready_plans
from seatrial.cli.runbook import PYTHON

ROOT = Path(__file__).parents[3]


def test_every_plan_of_the_checkout_is_listed_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(ready_plans())
    assert len(lines) == len(list((ROOT / "plans").rglob("*.yaml")))
    assert all(len(line.split()) > 3 and "#" not in line for line in lines)


def test_a_plan_is_copied_with_those_it_extends_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", "copy", "stage1/multinode-pernode", str(tmp_path)]
    assert run_command(command) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"multinode-pernode.yaml", "final-many-machines.yaml", "base.yaml"}
    assert run_command(command) == 0, "the same again"
    (tmp_path / "base.yaml").write_text("name: mine\n")
    assert run_command(command) == 1 and "differs" in capsys.readouterr().err
    assert (tmp_path / "base.yaml").read_text() == "name: mine\n"
    assert run_command([*command, "--force"]) == 0
    assert (tmp_path / "base.yaml").read_bytes() == (ROOT / "plans/stage1/base.yaml").read_bytes()
    assert run_command(["plan", "copy", "stage1/smok", str(tmp_path)]) == 1
    assert "stage1/smoke" in capsys.readouterr().err


def test_a_runbook_is_written_to_a_new_folder_with_its_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "stage1"
    assert run_command(["runbook", "stage1", str(target)]) == 0
    assert {path.name for path in target.iterdir()} == {"README.md", "docs", "plans", "scripts", "train.py", PYTHON}
    source = ROOT / "runbooks" / "stage1"
    for script in (source / "scripts").iterdir():
        if script.is_file():
            assert os.access(target / "scripts" / script.name, os.X_OK) == os.access(script, os.X_OK), script.name
    assert (target / "scripts" / "check_phaseb_stability.py").read_text().startswith(f"#!{sys.executable}\n")
    assert {path.name for path in (target / "plans" / "stage1").iterdir()} == {path.name for path in (ROOT / "plans/stage1").iterdir()}
    written = [path.read_text() for path in target.rglob("*") if path.is_file()]
    assert not any("../../plans" in text or "cd runbooks" in text for text in written)
    assert run_command(["runbook", "sft", str(tmp_path / "sft")]) == 0
    written = {path.relative_to(tmp_path / "sft") for path in (tmp_path / "sft").rglob("*") if path.is_file()}
    source = ROOT / "runbooks" / "sft"
    training = {path.relative_to(source) for path in (source / "training").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert len(training) == 9 and training < written and Path("plans/sft/scaling.yaml") in written
    assert run_command(["runbook", "stage1", str(target)]) == 1 and "not empty" in capsys.readouterr().err
    assert run_command(["runbook", "stage3", str(tmp_path / "other")]) == 1 and "stage1" in capsys.readouterr().err
