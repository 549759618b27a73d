"""Ready plans and runbooks, listed and copied from where they lie in a checkout. tests/docs/test_installed.py does it with a wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.runbook import PYTHON
from seatrial.cli.shipped import bundled_plans
from seatrial.plan.load import load_plan

ROOT = Path(__file__).parents[3]


def test_every_plan_of_the_checkout_is_listed_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(bundled_plans())
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
    assert load_plan(tmp_path / "base.yaml") == load_plan(ROOT / "plans/stage1/base.yaml")
    assert run_command(["plan", "copy", "stage1/smok", str(tmp_path)]) == 1
    assert "stage1/smoke" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("stage1/phase-c-compile", {"phase-b-stability-4090.yaml", "base.yaml"}),
        ("sparse-lm/validation-cpu", {"base-cpu.yaml"}),
    ],
    ids=["needs", "stages"],
)
def test_a_plan_is_copied_with_those_it_needs_or_has_as_stages(name: str, others: set[str], tmp_path: Path) -> None:
    assert run_command(["plan", "copy", name, str(tmp_path)]) == 0
    assert others < {path.name for path in tmp_path.iterdir()}


NAMED_PATH = re.compile(
    r"(?<![\w/.-])(?:\./)?((?:\.\./)*(?:docs|plans|scripts|runbooks|configs|training)/[\w./-]*\w\.(?:md|yaml|py|sh|sbatch))"
)


def test_what_a_copied_plan_names_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside it, or in the runbook's folder that its first line says how to get."""
    monkeypatch.chdir(tmp_path)
    for name in bundled_plans():
        assert run_command(["plan", "copy", name, f"copies/{name}"]) == 0
        runbook = ROOT / "runbooks" / name.partition("/")[0]
        for copied in Path(f"copies/{name}").iterdir():
            text = copied.read_text()
            assert "cd runbooks" not in text and text.startswith(f"# Of the runbook {runbook.name}: ") == runbook.is_dir()
            assert not [one for one in NAMED_PATH.findall(text) if not (runbook / one).is_file()], copied
            started = re.findall(r"seatrial (?:run|doctor|plan show) (\S+\.yaml)", text)
            assert all(Path(one).parent == copied.parent for one in started), copied
            assert not started or copied in map(Path, started)


@pytest.mark.parametrize("name", ["stage1", "sparse-lm"])
def test_what_a_written_runbook_names_is_there(name: str, tmp_path: Path) -> None:
    assert run_command(["runbook", name, str(tmp_path / "here")]) == 0
    for path in sorted((tmp_path / "here").rglob("*")):
        if path.suffix in (".md", ".yaml", ".py", ".sh"):
            missing = {one for one in NAMED_PATH.findall(path.read_text()) if not (tmp_path / "here" / one).exists()}
            assert not missing, path.relative_to(tmp_path)


def test_train_py_without_hydra_says_how_to_install_it(tmp_path: Path) -> None:
    for package, how in (("hydra", "pip install 'seatrial[stage1]'"), ("seatrial_workloads", "activate the environment that seatrial is")):
        blocked = f"import sys, runpy; sys.modules['{package}'] = None; runpy.run_path({str(ROOT / 'runbooks/stage1/train.py')!r})"
        done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 1 and how in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


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
