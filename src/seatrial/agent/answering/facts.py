"""What this host is: its make, its GPUs, its versions, its network; nothing is started but another interpreter that a plan names.

In: a question of the doctor's, with the interpreter of the runs where a plan names one. Out: facts as JSON takes them; what cannot be
read is empty, and `trouble` says where a driver does not answer.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial import __version__
from seatrial.agent.answering.code import code_digest
from seatrial.machine.gpus import read_driver
from seatrial.machine.host import host
from seatrial.machine.interfaces import interfaces
from seatrial.machine.interpreter import interpreter_of
from seatrial.machine.proc_files import boot_id
from seatrial.machine.running_agents import campaigns_here


def facts(question: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known at once. `program`, `cwd` and `variables` name the runs' own interpreter; this one without."""
    machine = host()
    variables = {**os.environ, **{str(name): str(value) for name, value in question.get("variables", {}).items()}}
    python = interpreter_of(tuple(map(str, question.get("program", ()))), Path(str(question.get("cwd") or "/")), variables)
    return {
        "host": machine.name,
        "boot_id": boot_id(),
        "platform": machine.platform,
        "cpu": machine.cpu,
        "cpu_count": machine.cpu_count,
        "memory_bytes": machine.memory_bytes,
        "seatrial": __version__,
        "code": _code(),
        "python": python.python,
        "packages": dict(python.packages),
        "torch_cuda": python.torch_cuda,
        "user": _user(),
        "uid": os.geteuid(),
        "campaigns": campaigns_here(),
        "interfaces": {name: list(addresses) for name, addresses in interfaces().items()},
    }


def gpus(question: Mapping[str, Any]) -> dict[str, Any]:
    """Apart from the facts, since a driver may hang."""
    driver = read_driver()
    problem = "" if driver.no_driver else driver.problem
    told = {"gpus": [gpu.name for gpu in driver.gpus], "driver_version": driver.version, "driver_cuda": driver.cuda}
    return {**told, "trouble": problem} if problem else told


def _code() -> str:
    try:
        return code_digest()
    except OSError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
