"""What an attempt ran on: host, GPUs, driver, code and versions, in the seeds' columns, with a fingerprint over what must be alike.

Gathered before every attempt, so it takes milliseconds: what cannot change in a process is read once.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.machine.git import git_state
from seatrial.machine.gpus import Gpu, chosen, driver_version, list_gpus
from seatrial.machine.host import host
from seatrial.machine.packages import package_versions
from seatrial.records.command import Provenance

# Two runs are averaged only when these are alike. Not among them: the serial numbers of GPUs (a like card is a like card) and
# git_dirty (results written beside the code must not part two repeats).
FINGERPRINT_FIELDS = (
    "host",
    "gpu_name",
    "gpu_cc",
    "gpu_power_limit_w",
    "driver_version",
    "git_commit_hash",
    "python",
)
FINGERPRINT_PACKAGES = ("torch",)
FINGERPRINT_LENGTH = 12


def gather(cwd: Path, devices: Sequence[str]) -> Provenance:
    """The machine and the code in `cwd` as they are now; `devices` (indices or UUIDs) narrows the GPUs to those of the run."""
    machine, git, gpus = host(), git_state(cwd), visible_gpus(devices, os.environ)
    found = Provenance(
        host=machine.name,
        platform=machine.platform,
        python=platform.python_version(),
        packages=package_versions(),
        cpu=machine.cpu,
        cpu_count=machine.cpu_count,
        memory_bytes=machine.memory_bytes,
        gpu_name=_joined_when_unlike([gpu.name for gpu in gpus]),
        gpu_cc=";".join(f"{gpu.index}:{gpu.compute_capability}" for gpu in gpus),
        gpu_uuid_list=";".join(gpu.uuid for gpu in gpus),
        gpu_power_limit_w=";".join(_power(gpu) for gpu in gpus),
        pcie_gen=_joined_when_unlike(["" if gpu.pcie_gen_max is None else str(gpu.pcie_gen_max) for gpu in gpus]),
        driver_version=driver_version(),
        git_commit_hash=git.commit,
        git_branch=git.branch,
        git_dirty=git.dirty,
    )
    return replace(found, fingerprint=fingerprint(found))


def fingerprint(provenance: Provenance) -> str:
    """Short hash over FINGERPRINT_FIELDS and the versions of FINGERPRINT_PACKAGES."""
    facts = {name: getattr(provenance, name) for name in FINGERPRINT_FIELDS}
    facts["packages"] = {name: provenance.packages.get(name, "") for name in FINGERPRINT_PACKAGES}
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def visible_gpus(devices: Sequence[str], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs a run can see: those it names, else those CUDA_VISIBLE_DEVICES leaves, else all."""
    limit = environment.get("CUDA_VISIBLE_DEVICES")
    if devices or limit is None:
        return chosen(list_gpus(), devices)
    named = [part.strip() for part in limit.split(",") if part.strip()]
    return chosen(list_gpus(), named) if named else ()


def _joined_when_unlike(values: Sequence[str]) -> str:
    return ";".join(values) if len(set(values)) > 1 else "".join(values[:1])


def _power(gpu: Gpu) -> str:
    return "" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.2f}"
