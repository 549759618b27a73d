"""`seatrial init`: a plan from a command, and nothing overwritten unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.cli import init
from seatrial.cli.main import run_command
from seatrial.plan.load import load_plan


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_plan_that_loads(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "-o", "mine.yaml", "--", "torchrun", "--nproc_per_node", "2", "train.py", "--bs", "8"]) == 0
    assert capsys.readouterr().out.startswith("wrote mine.yaml\nnext: give it axes")
    plan = load_plan(here / "mine.yaml")
    assert (plan.launcher.kind, plan.place.ranks, plan.workload.args, plan.repeats) == ("torchrun", 2, ["--bs", "8"], 3)


def test_init_overwrites_nothing_unasked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan.yaml").write_text("mine")
    (here / "folder").mkdir()
    for words, says in (
        ([], "plan.yaml is there already: choose another name with -o, or overwrite it with --force"),
        (["-o", "folder"], "folder is a folder: name the file to write in it, as in -o folder/plan.yaml"),
        (["-o", "no/such.yaml"], "there is no folder no to write such.yaml to"),
    ):
        assert run_command(["init", *words, "--", "python", "train.py"]) == 1
        assert says in capsys.readouterr().err
    assert (here / "plan.yaml").read_text() == "mine"
    assert run_command(["init", "--force", "--", "python", "train.py"]) == 0
    assert load_plan(here / "plan.yaml").workload.script == "train.py"
    assert init.EXAMPLES.count("seatrial init") == 2
