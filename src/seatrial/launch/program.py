"""Finding the program a command starts with, before anything is started.

It becomes its full path, found on PATH or beside this interpreter (an environment that was not activated), so that command.sh starts
the same program from any shell; one that is nowhere is a LaunchError that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from seatrial.errors import LaunchError
from seatrial.records.command import Command
from seatrial.shell import find_program

_COMES_WITH = {
    "torchrun": "install torch (pip install 'seatrial[workloads]')",
    "accelerate": "install it (pip install accelerate)",
    **dict.fromkeys(("deepspeed", "ds"), "install DeepSpeed (pip install 'seatrial[stage1]')"),
}


def resolved(command: Command, caller: Mapping[str, str]) -> Command:
    """`command` with a first word that can be started from its folder with its own PATH."""
    program = _found(command.argv[0], Path(command.cwd), {**caller, **command.env}.get("PATH"))
    return replace(command, argv=(program, *command.argv[1:]))


def _found(name: str, cwd: Path, search_path: str | None) -> str:
    if "/" in name:
        return _checked_file(name, cwd)
    found = find_program(name, search_path, cwd)
    if found:
        return found
    raise LaunchError(f"'{name}' was found neither on PATH nor beside this interpreter: {_advice(name, cwd)}")


def _checked_file(name: str, cwd: Path) -> str:
    path = cwd / name
    if not path.is_file():
        raise LaunchError(f"'{name}' does not exist (looked at {path}): check the path, relative ones count from {cwd}")
    if not os.access(path, os.X_OK):
        raise LaunchError(f"'{name}' cannot be executed: run `chmod +x {path}`, or start it with its interpreter (python {name})")
    return name


def _advice(name: str, cwd: Path) -> str:
    if (cwd / name).is_file():
        return f"a file of that name lies in {cwd}, so type './{name}' or 'python {name}'"
    return f"{_COMES_WITH.get(name, 'install it')}, or activate the environment it is in"
