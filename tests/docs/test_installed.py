"""An installed wheel, without a checkout: it brings plans and runbooks, and they work in an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.plan.load import load_plan

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src", "plans", "runbooks")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    # A copy, since a build leaves files in its folder; its links stay links.
    for name in BUILT_FROM:
        source, target = ROOT / name, folder / "source" / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "outputs", "data", "*.egg-info"))
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
    # The wheel from the sdist, as a release is built; with this environment's setuptools, so that nothing is downloaded.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "source"]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", folder / "installed", wheel], check=True)
    return folder / "installed"


def run(installed: Path, folder: Path, *argv: str, **variables: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", **variables}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ready_plans_are_listed_and_copied_with_what_they_extend(installed: Path, tmp_path: Path) -> None:
    seatrial = (sys.executable, "-m", "seatrial")
    assert run(installed, tmp_path, sys.executable, "-c", "import seatrial; print(seatrial.__file__)").startswith(str(installed))
    listed = {line.split()[0]: line for line in run(installed, tmp_path, *seatrial, "plan", "list").splitlines()}
    assert set(listed) == {str(path.relative_to(ROOT / "plans").with_suffix("")) for path in (ROOT / "plans").rglob("*.yaml")}
    assert all(len(line.split()) > 2 for line in listed.values()), "each says what it is for"
    run(installed, tmp_path, *seatrial, "plan", "copy", "stage1/mainline-4x4090")
    assert {path.name for path in tmp_path.iterdir()} == {"mainline-4x4090.yaml", "mainline-2x4090.yaml", "base.yaml"}
    assert "4 groups, 8 runs" in run(installed, tmp_path, *seatrial, "plan", "show", "mainline-4x4090.yaml")
    run(installed, tmp_path, *seatrial, "plan", "copy", "dummy-smoke", "mine")
    run(installed, tmp_path, *seatrial, "run", "mine/dummy-smoke.yaml", "--set", "steps=20")


def test_a_runbook_is_written_and_its_entry_points_start_this_installation(installed: Path, tmp_path: Path) -> None:
    run(installed, tmp_path, sys.executable, "-m", "seatrial", "runbook", "stage1", "here")
    here = tmp_path / "here"
    assert "../../plans" not in (here / "README.md").read_text()
    for plan in (here / "plans" / "stage1").iterdir():
        load_plan(plan, ())
    (here / "data/LibriSpeech/LibriSpeech").mkdir(parents=True)
    random_weights = {"SPEECH_MODEL_PATH": "tiny", "TEXT_MODEL_PATH": "tiny", "PRETRAINED_CKPT": "none"}
    # A PATH without this environment: the entry points know their interpreter.
    variables = {**random_weights, "DRY_RUN": "1", "MODE": "sweep", "INCLUDE": "", "PATH": "/usr/bin:/bin"}
    printed = run(installed, here, "./scripts/run_stage1_ab_bench.sh", **variables)
    assert str(here / "train.py") in printed
    assert "--output-root" in run(installed, here, "./scripts/check_phaseb_stability.py", "--help", PATH="/usr/bin:/bin")
