"""Looked at before a campaign starts, so that what can only fail is refused in a second and not after the first hour.

Goes in: a plan and its folder. Comes out: one `Check` a question, each naming the later error it prevents and the fix. Nothing is
changed on the machine; campaign/ writes preflight.json and refuses when one is not ok.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from seatrial.machine.gpus import list_gpus
from seatrial.machine.interpreter import interpreter_of
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec
from seatrial.shell import find_program
from seatrial.units import format_bytes

# Below this a campaign's logs and events are likely to end in a full disk.
LEAST_FREE_BYTES = 200 << 20


def run_checks(plan: CampaignPlan) -> list[Check]:
    """Every check that applies to `plan`."""
    return [check for one in (_programs, _scripts, _torch, _devices, _disk) for check in one(plan)]


def _programs(plan: CampaignPlan) -> Iterator[Check]:
    typed = sorted({(name, _environment(spec).get("PATH", os.defpath), spec.cwd) for spec in plan.runs if (name := _program(spec))})
    for name, path, cwd in typed:
        where = find_program(name, path, Path(cwd))
        yield Check(
            name=f"program {name}",
            ok=where is not None,
            found=where or _absence(name, Path(cwd)),
            prevents=f"{name}: No such file or directory",
            fix=_way_to(name, cwd),
        )
    if any(_starts_our_torchrun(spec) for spec in plan.runs):
        yield _our_torchrun()


def _program(spec: RunSpec) -> str | None:
    """The word a run's command begins with, where the user typed it."""
    if spec.launcher.program:
        return spec.launcher.program[0]
    return spec.workload.script if spec.launcher.kind == "command" else None


def _environment(spec: RunSpec) -> dict[str, str]:
    return {**os.environ, **spec.env}


def _absence(name: str, cwd: Path) -> str:
    if "/" not in name:
        return "not on PATH and not beside this Python"
    return f"{cwd / name} may not be executed" if (cwd / name).is_file() else f"no such file: {cwd / name}"


def _way_to(name: str, cwd: str) -> str:
    if "/" in name:
        return f"check the path (a relative one counts from {cwd}) and that the file may be executed"
    return f"install {name}, activate the environment that has it, or give its full path"


def _starts_our_torchrun(spec: RunSpec) -> bool:
    return spec.launcher.kind == "torchrun" and not spec.launcher.program and not spec.workload.module


def _our_torchrun() -> Check:
    """Said, not refused: the script is the user's, and so is the environment it needs."""
    return Check(
        name="program torchrun",
        ok=True,
        found="torch.distributed.run of this Python" if _has_torch() else "this Python has no torch, so it cannot start torchrun",
        prevents="ModuleNotFoundError: No module named 'torch'",
        fix="pip install 'seatrial[workloads]', or name the torchrun of another environment in launcher.program",
    )


def _scripts(plan: CampaignPlan) -> Iterator[Check]:
    files = {
        (spec.workload.script, spec.cwd)
        for spec in plan.runs
        if spec.workload.script and spec.workload.script.endswith(".py") and spec.launcher.kind != "command"
    }
    for script, cwd in sorted(files):
        there = (Path(cwd) / script).is_file()
        yield Check(
            name=f"script {script}",
            ok=there,
            found="there" if there else f"no such file in {cwd}",
            prevents=f"can't open file '{script}'",
            fix="name the script as you would type it in this folder",
        )


def _torch(plan: CampaignPlan) -> Iterator[Check]:
    needs = {(spec.workload.name, spec.launcher.program[:1]): spec for spec in plan.runs if _needs_torch(spec)}
    for (name, program), spec in sorted(needs.items()):
        there = _torch_for(spec)
        if there is None:
            continue
        python = f"the Python of {program[0]}" if program else "this Python"
        yield Check(
            name=f"torch for {name}",
            ok=there,
            found="installed" if there else f"not installed in {python}",
            prevents="ModuleNotFoundError: No module named 'torch'",
            fix="pip install 'seatrial[workloads]'" + (" there" if program else ""),
        )


def _needs_torch(spec: RunSpec) -> bool:
    """Whether a bundled workload cannot run without torch: it says so itself, or what starts it is a part of torch."""
    if not spec.workload.module:
        return False
    settings = importlib.import_module(f"{spec.workload.module.rpartition('.')[0]}.settings")
    return bool(settings.NEEDS_TORCH) or spec.launcher.kind == "torchrun"


def _torch_for(spec: RunSpec) -> bool | None:
    """Whether the Python that runs `spec` has torch; None when that Python cannot be asked."""
    if not spec.launcher.program:
        return _has_torch()
    found = interpreter_of(spec.launcher.program, Path(spec.cwd), _environment(spec))
    return "torch" in found.packages if found.python else None


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _devices(plan: CampaignPlan) -> Iterator[Check]:
    asked = sorted({device for spec in plan.runs for device in spec.place.devices})
    if not asked:
        return
    known = [str(gpu.index) for gpu in list_gpus()]
    missing = [device for device in asked if device.isdigit() and device not in known]
    yield Check(
        name="GPUs",
        ok=not missing,
        found=f"{len(known)} here ({', '.join(known) or 'none'}), {', '.join(asked)} asked for",
        prevents="CUDA error: invalid device ordinal",
        fix="take ids that `nvidia-smi -L` lists, or use place: {kind: local, ranks: N} for CPU ranks",
    )


def _disk(plan: CampaignPlan) -> Iterator[Check]:
    folder = Path(plan.output).absolute()
    while not folder.exists():
        folder = folder.parent
    writable = folder.is_dir() and os.access(folder, os.W_OK)
    yield Check(
        name=f"folder {plan.output}",
        ok=writable,
        found="can be written to" if writable else f"{folder} cannot be written to",
        prevents="PermissionError while the first run starts",
        fix="choose another folder with --out",
    )
    free_bytes = shutil.disk_usage(folder).free
    yield Check(
        name="disk space",
        ok=free_bytes >= LEAST_FREE_BYTES,
        found=f"{format_bytes(free_bytes)} free",
        prevents="OSError: [Errno 28] No space left on device",
        fix=f"free at least {format_bytes(LEAST_FREE_BYTES)} or choose another disk with --out",
    )
