"""`seatrial runbook NAME DIR`: writes a procedure's folder with its entry points and plans from the installed package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from seatrial.cli.shipped import PLAN_PATH, PLANS, RUNBOOKS, bundled_plans, in_runbook
from seatrial.core import files
from seatrial.core.errors import UsageError, did_you_mean

EXAMPLES = {
    "runbook": "seatrial runbook sparse-lm mine\n\nseatrial runbook stage1 s1 && cd s1 && DRY_RUN=1 ./scripts/run_stage1_ab_bench.sh"
}
# Parts of a runbook; a checkout also has its user's outputs and data.
PARTS = (
    "README.md",
    "train.py",
    "docs/*.md",
    "scripts/*.sh",
    "scripts/*.py",
    "scripts/automation/*.py",
    "configs/*.yaml",
    "nsa/tests/*.py",
    "training/*.sh",
    "training/slurm/*.sbatch",
    "training/slurm/*.sh",
    "training/src/*.py",
)
PYTHON = ".python"
"""File that names this installation's interpreter to the entry points."""
SHEBANG = "#!/usr/bin/env python3"
# Linux cuts a longer first line, and splits one with spaces.
LONGEST_SHEBANG = 127
Name = Annotated[str, typer.Argument(metavar="NAME", help="The procedure: stage1, sparse-lm or sft.", show_default=False)]
Target = Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write; it must be new or empty.", show_default=False)]


def runbook(name: Name, target: Target) -> int:
    """Write a procedure's folder: its README, its entry points (scripts/, train.py, training/) and its plans (plans/).

    Type the README's commands in that folder. The entry points start this installation of Seatrial.
    """
    known = sorted(path.name for path in RUNBOOKS.iterdir() if path.is_dir())
    if name not in known:
        raise UsageError(f"there is no runbook '{name}': {did_you_mean(name, known)}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already and is not empty: name a new folder")
    source = RUNBOOKS / name
    mentioned = {found["name"] for found in PLAN_PATH.finditer((source / "README.md").read_text(encoding="utf-8"))}
    for path in (one for part in PARTS for one in sorted(source.glob(part)) if one.is_file()):
        _write(path, target / path.relative_to(source), name)
    for plan, path in bundled_plans().items():
        if plan.startswith(f"{name}/") or plan in mentioned:
            _write(path, target / "plans" / path.relative_to(PLANS), name)
    files.write_text(target / PYTHON, f"{sys.executable}\n")
    print(f"wrote {target}\nnext: cd {target}, read README.md, and check this machine with `seatrial doctor --fast`")
    return 0


def _write(source: Path, target: Path, name: str) -> None:
    """A copy with its mode; paths of a checkout become those of the folder."""
    text = in_runbook(source.read_text(encoding="utf-8"), name)
    if text.startswith(SHEBANG) and len(sys.executable) < LONGEST_SHEBANG - 2 and not any(map(str.isspace, sys.executable)):
        text = f"#!{sys.executable}{text.removeprefix(SHEBANG)}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    shutil.copymode(source, target)
