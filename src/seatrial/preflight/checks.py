"""Looked at before a campaign starts, so that what can only fail is refused in a second and not after the first hour.

Goes in: a plan and its folder. Comes out: one `Check` a question, each naming the later error it prevents and the fix. Nothing is
changed on the machine; campaign/ writes preflight.json and refuses when one is not ok.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from seatrial.machine.gpus import list_gpus
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
    typed = sorted(
        {spec.launcher.program[0] for spec in plan.runs if spec.launcher.program} | {p for p in map(_own_program, plan.runs) if p}
    )
    for name in typed:
        where = find_program(name)
        yield Check(
            name=f"program {name}",
            ok=where is not None,
            found=where or "not on PATH and not beside this Python",
            prevents=f"{name}: No such file or directory",
            fix=f"install {name}, activate the environment that has it, or give its full path",
        )


def _own_program(spec: RunSpec) -> str | None:
    return spec.workload.script if spec.launcher.kind == "command" else None


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
    needs = sorted({spec.workload.name for spec in plan.runs if spec.workload.module and not _is_torch_free(spec)})
    for name in needs:
        there = importlib.util.find_spec("torch") is not None
        yield Check(
            name=f"torch for {name}",
            ok=there,
            found="installed" if there else "not installed in this Python",
            prevents="ModuleNotFoundError: No module named 'torch'",
            fix="pip install 'seatrial[workloads]'",
        )


def _is_torch_free(spec: RunSpec) -> bool:
    return spec.workload.name == "dummy" and spec.launcher.kind == "python"


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
