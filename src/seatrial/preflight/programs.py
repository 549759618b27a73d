"""The programs and scripts a plan's commands start with, and those the harness itself is glad of."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec
from seatrial.shell import find_program, on_path

PROGRAM = Question(
    name="program {program}",
    looks_at="the word each command of the plan starts with: on the run's own PATH, or beside this Python",
    prevents="{program}: No such file or directory",
    fix="{way}",
    in_docs={"way": "install it, activate the environment that has it, or give its full path"},
    refuses=True,
)
TORCHRUN = Question(
    name="program torchrun",
    looks_at="whether this Python can start torchrun for a script of yours",
    prevents="ModuleNotFoundError: No module named 'torch'",
    fix="pip install 'seatrial[workloads]', or name the torchrun of another environment in launcher.program",
)
SCRIPT = Question(
    name="script {script}",
    looks_at="that the script lies where the run is started",
    prevents="can't open file '{script}': [Errno 2] No such file or directory",
    fix="name the script as you would type it in {folder}",
    refuses=True,
)
GIT = Question(
    name="git",
    looks_at="whether git is there to record the commit of the code",
    prevents="results that nobody can trace to a commit: git_commit_hash stays empty",
    fix="install git",
    only_tells=True,
)
NVIDIA_SMI = Question(
    name="nvidia-smi",
    looks_at="whether nvidia-smi is on PATH; Seatrial itself asks the driver and does not need it",
    prevents="nvidia-smi: command not found, when you follow a fix that names it",
    fix="install the driver's utilities",
    only_tells=True,
)
QUESTIONS = (PROGRAM, TORCHRUN, SCRIPT, GIT, NVIDIA_SMI)


def checks(need: Need) -> Iterator[Check]:
    yield from _programs(need)
    yield from _scripts(need)
    for question in (GIT, NVIDIA_SMI):
        yield question.answer(True, on_path(question.name) or "not on PATH")


def _programs(need: Need) -> Iterator[Check]:
    typed = {(name, need.environment(spec).get("PATH", os.defpath), spec.cwd) for spec in need.runs if (name := _program(spec))}
    for name, path, cwd in sorted(typed):
        where = find_program(name, path, Path(cwd))
        yield PROGRAM.answer(where is not None, where or _absence(name, Path(cwd)), program=name, way=_way_to(name, cwd))
    if any(_starts_our_torchrun(spec) for spec in need.runs):
        there = importlib.util.find_spec("torch") is not None
        yield TORCHRUN.answer(
            there, "torch.distributed.run of this Python" if there else "this Python has no torch, so it cannot start torchrun"
        )


def _program(spec: RunSpec) -> str | None:
    """The word a run's command begins with, where the user typed it."""
    if spec.launcher.program:
        return spec.launcher.program[0]
    return spec.workload.script if spec.launcher.kind == "command" else None


def _absence(name: str, cwd: Path) -> str:
    if "/" not in name:
        return "not on PATH and not beside this Python"
    return f"{cwd / name} may not be executed" if (cwd / name).is_file() else f"no such file: {cwd / name}"


def _way_to(name: str, cwd: str) -> str:
    if "/" in name:
        return f"check the path (a relative one counts from {cwd}) and that the file may be executed"
    how = " (pip install 'seatrial[stage1]')" if name in ("deepspeed", "ds") else ""
    return f"install {name}{how}, activate the environment that has it, or give its full path"


def _starts_our_torchrun(spec: RunSpec) -> bool:
    return spec.launcher.kind == "torchrun" and not spec.launcher.program and not spec.workload.module


def _scripts(need: Need) -> Iterator[Check]:
    files = {
        (spec.workload.script, spec.cwd)
        for spec in need.runs
        if spec.workload.script and spec.workload.script.endswith(".py") and spec.launcher.kind != "command"
    }
    for script, cwd in sorted(files):
        there = (Path(cwd) / script).is_file()
        yield SCRIPT.answer(there, "there" if there else f"no such file in {cwd}", script=script, folder=cwd)
