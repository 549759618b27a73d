"""The Pythons a plan runs in, and the torch each of them has: its version, and the CUDA it was built for against the driver's.

Nothing of theirs is imported: versions are read from metadata, the build from torch's version file.
"""

from __future__ import annotations

import importlib.util
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seatrial.machine.gpus import driver_cuda
from seatrial.machine.interpreter import Interpreter, interpreter_of
from seatrial.preflight.need import Need, asks_for_gpus, needs_torch
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec

# What the bundled workloads are tried with.
OLDEST_TORCH = (2, 11)
SHOWN_PACKAGES = ("torch", "transformers", "deepspeed", "lightning", "vllm")

PYTHON = Question(
    name="Python",
    looks_at="the Python of the harness and its packages",
    prevents="results of a Python one did not mean",
    fix="start seatrial from the environment that is meant",
    only_tells=True,
)
RUN_PYTHON = Question(
    name="Python of {program}",
    looks_at="the Python a plan's own program belongs to, often not the harness's, and its packages",
    prevents="results of a Python one did not mean",
    fix="give the program by its full path",
    only_tells=True,
)
TORCH = Question(
    name="torch for {workload}",
    looks_at="that the Python which runs a bundled workload has torch",
    prevents="ModuleNotFoundError: No module named 'torch'",
    fix="pip install 'seatrial[workloads]'{there}",
    in_docs={"there": ""},
    refuses=True,
)
TORCH_AGE = Question(
    name="torch version",
    looks_at="that torch is not older than what the bundled workloads are tried with",
    prevents="AttributeError: module 'torch' has no attribute … in a bundled workload",
    fix="pip install 'torch>=2.11' in that environment",
)
WORKLOADS = Question(
    name="seatrial in the Python of {program}",
    looks_at="that a Python of your own choice has the bundled workload it is to run",
    prevents="ModuleNotFoundError: No module named 'seatrial_workloads'",
    fix="pip install 'seatrial[workloads]' in that environment, or leave launcher.program out",
)
CUDA_BUILD = Question(
    name="CUDA build of torch",
    looks_at="that torch was built for CUDA when the plan asks for GPUs",
    prevents="AssertionError: Torch not compiled with CUDA enabled",
    fix="install a CUDA build of torch there (the selector on pytorch.org gives the command), or ask for CPU ranks: place: "
    "{{kind: local, ranks: N}}",
    refuses=True,
)
DRIVER = Question(
    name="driver for torch",
    looks_at="that the driver takes the CUDA version torch was built for",
    prevents="RuntimeError: The NVIDIA driver on your system is too old",
    fix="update the driver, or install a torch built for CUDA {takes}",
    in_docs={"takes": "that the driver takes"},
    refuses=True,
)
QUESTIONS = (PYTHON, RUN_PYTHON, TORCH, TORCH_AGE, WORKLOADS, CUDA_BUILD, DRIVER)


@dataclass(frozen=True, kw_only=True)
class UsedPython:
    """One interpreter and what the runs that use it ask of it."""

    interpreter: Interpreter
    program: str = ""
    """As typed; empty for the harness's own."""
    workloads: tuple[str, ...] = ()
    """Bundled workloads that need torch here."""
    bundled: bool = False
    asks_for_gpus: bool = False


def checks(need: Need) -> Iterator[Check]:
    own = interpreter_of((), Path.cwd(), need.caller)
    yield PYTHON.answer(True, f"{platform.python_version()}{_shown(own.packages)}")
    takes = driver_cuda()
    for used in pythons_of(need):
        yield from judge(used, takes)
    if not need.planned:
        yield from judge_driver(UsedPython(interpreter=own), takes)


def pythons_of(need: Need) -> list[UsedPython]:
    """Every interpreter the runs start, once; commands that are no Python are left out."""
    by_program: dict[tuple[str, ...], list[RunSpec]] = {}
    for spec in need.runs:
        if spec.launcher.kind != "command" or spec.launcher.program:
            by_program.setdefault((*spec.launcher.program[:1], spec.cwd, *_path(need, spec)), []).append(spec)
    return [_used(need, specs) for specs in by_program.values()]


def _path(need: Need, spec: RunSpec) -> tuple[str, ...]:
    return (need.environment(spec).get("PATH", ""),)


def _used(need: Need, specs: list[RunSpec]) -> UsedPython:
    first = specs[0]
    return UsedPython(
        interpreter=interpreter_of(first.launcher.program, Path(first.cwd), need.environment(first)),
        program="".join(first.launcher.program[:1]),
        workloads=tuple(sorted({spec.workload.name for spec in specs if needs_torch(spec)})),
        bundled=any(spec.workload.module for spec in specs),
        asks_for_gpus=any(asks_for_gpus(spec) for spec in specs),
    )


def judge(used: UsedPython, takes: str) -> Iterator[Check]:
    """What is amiss with one Python; one that could not be asked is left to the run itself."""
    if not used.interpreter.python:
        return
    packages = used.interpreter.packages
    if used.program:
        yield RUN_PYTHON.answer(True, f"{used.interpreter.python}{_shown(packages)}", program=used.program)
        if used.bundled:
            there = "seatrial" in packages
            yield WORKLOADS.answer(there, "installed" if there else "not installed", program=used.program)
    for workload in used.workloads:
        yield _torch(used, workload)
    if used.workloads and "torch" in packages:
        yield TORCH_AGE.answer(_release(packages["torch"]) >= OLDEST_TORCH, f"torch {packages['torch']}")
    if used.asks_for_gpus and "torch" in packages:
        build = cuda_build(used.interpreter)
        yield CUDA_BUILD.answer(build != "cpu", f"torch {packages['torch']}: {_build_text(build)}", refuses=bool(used.workloads))
        yield from judge_driver(used, takes)


def judge_driver(used: UsedPython, takes: str) -> Iterator[Check]:
    """The CUDA torch was built for against what the driver takes; nothing where either is not known."""
    build = cuda_build(used.interpreter)
    if not takes or build in ("", "cpu"):
        return
    # Within one major version an older driver runs newer builds.
    ok = _major(build) <= _major(takes)
    found = f"torch {used.interpreter.packages.get('torch', '')} is built for CUDA {build}, the driver takes up to {takes}"
    yield DRIVER.answer(ok, found, refuses=bool(used.workloads), takes=_major(takes))


def cuda_build(interpreter: Interpreter) -> str:
    """`cpu`, or the CUDA version torch was built for; empty when nothing tells."""
    return interpreter.torch_cuda or ("cpu" if "+cpu" in interpreter.packages.get("torch", "") else "")


def _torch(used: UsedPython, workload: str) -> Check:
    # A torch built in its source tree has no metadata.
    there = (
        "torch" in used.interpreter.packages
        or bool(used.interpreter.torch_cuda)
        or (not used.program and importlib.util.find_spec("torch") is not None)
    )
    python = f"the Python of {used.program}" if used.program else "this Python"
    return TORCH.answer(
        there, "installed" if there else f"not installed in {python}", workload=workload, there=" there" * bool(used.program)
    )


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _release(version: str) -> tuple[int, int]:
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else OLDEST_TORCH


def _shown(packages: Mapping[str, str]) -> str:
    return "".join(f", {name} {packages[name]}" for name in SHOWN_PACKAGES if name in packages)


def _build_text(build: str) -> str:
    return {"cpu": "a CPU build", "": "its build is not told by its version"}.get(build, f"built for CUDA {build}")
