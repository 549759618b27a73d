"""Which Python a run's program is, and what that Python has installed: often not the one this harness runs in.

In: the words of a command (`torchrun …`, `/opt/venv/bin/python …`), the folder and the variables it starts with. Out: `Interpreter`,
empty where the program is no Python that can be found. Asked once for each interpreter while this process lives.
"""

from __future__ import annotations

import functools
import importlib.machinery
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.machine.cuda_versions import cuda_in
from seatrial.machine.packages import RECORDED_PACKAGES, package_versions
from seatrial.shell import find_program, on_path, output_of

ASK_TIMEOUT_S = 10.0
# A first line longer than this is not one.
SCRIPT_HEAD_BYTES = 1024
# What of a run's variables decides where an interpreter looks for packages, or whether it starts at all.
RELEVANT_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "LD_LIBRARY_PATH")
_PYTHON_NAME = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?")
# Runs in any Python 3.8 or later, and imports none of the packages.
_QUESTION = """\
import importlib.metadata, importlib.util, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        pass
torch = importlib.util.find_spec("torch")
print(json.dumps({"python": platform.python_version(), "packages": found, "torch": torch.origin if torch else None}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """One Python; empty when it is not known."""

    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    torch_cuda: str = ""
    """The CUDA its torch was built for; empty for a CPU build and where there is no torch."""


def interpreter_of(program: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Interpreter:
    """The Python that `program` starts, this one when `program` has no words; `env` is all that the process would get."""
    if not program:
        return _own()
    path = python_behind(program[0], cwd, env.get("PATH"))
    if path is None:
        return Interpreter()
    variables = _relevant(env)
    return _own() if is_this_python(path) and variables == _relevant(os.environ) else _asked(path, variables)


def python_behind(name: str, cwd: Path, search_path: str | None = None) -> str | None:
    """The interpreter a program is, or that its first lines name; None for a binary, a shell script, or one that is not there."""
    found = find_program(name, search_path, cwd)
    if found is None or _PYTHON_NAME.fullmatch(Path(found).name):
        return found
    words = _named_by(Path(found))
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not _PYTHON_NAME.fullmatch(Path(words[0]).name):
        return None
    return on_path(words[0], search_path, cwd)


def is_this_python(path: str) -> bool:
    """Whether `path` is the harness's own interpreter; links of two virtual environments to one binary are two interpreters."""
    there, here = Path(path), Path(sys.executable)
    try:
        return there.parent.resolve() == here.parent.resolve() and there.samefile(here)
    except OSError:
        return False


def _named_by(script: Path) -> list[str]:
    """The words behind `#!`, or behind the `exec` that installers write where the path is too long for that."""
    try:
        with open(script, "rb") as source:
            head = source.read(SCRIPT_HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return []
    first, _, rest = head.partition("\n")
    if not first.startswith("#!"):
        return []
    second = rest.partition("\n")[0]
    try:
        return shlex.split(second)[1:] if second.startswith("'''exec' ") else first[2:].split()
    except ValueError:
        return []


def _relevant(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, env[name]) for name in RELEVANT_VARIABLES if name in env)


@functools.cache
def _own() -> Interpreter:
    # By the path alone: a torch that is imported already, or stands in for one in a test, has nothing to say here.
    torch = importlib.machinery.PathFinder.find_spec("torch")
    return Interpreter(
        python=platform.python_version(), packages=package_versions(), torch_cuda=_torch_cuda(torch.origin if torch else None)
    )


@functools.cache
def _asked(path: str, variables: tuple[tuple[str, str], ...]) -> Interpreter:
    """What the interpreter says of itself; one that does not answer is not asked again."""
    others = {name: value for name, value in os.environ.items() if name not in RELEVANT_VARIABLES}
    # In the root folder, because -c puts the current one first on the path and a user's json.py would be imported.
    text = output_of([path, "-c", _QUESTION, *RECORDED_PACKAGES], cwd=Path("/"), timeout_s=ASK_TIMEOUT_S, env={**others, **dict(variables)})
    try:
        answer = json.loads((text or "").strip().rpartition("\n")[2])
        return Interpreter(python=str(answer["python"]), packages=dict(answer["packages"]), torch_cuda=_torch_cuda(answer.get("torch")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Interpreter()


def _torch_cuda(torch: str | None) -> str:
    """What stands in the version file beside torch's __init__.py."""
    try:
        return cuda_in(Path(torch).with_name("version.py").read_text(encoding="utf-8", errors="replace")) if torch else ""
    except OSError:
        return ""
