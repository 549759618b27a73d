"""What an attempt ran on: host, GPUs, driver, code and versions, in the seeds' columns, with a fingerprint over what must be alike.

Python and packages are those of the run's own interpreter. Gathered before every attempt, so it takes milliseconds: what cannot
change in a process is read once, and another interpreter is asked once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from seatrial.machine.git import git_state
from seatrial.machine.gpus import Gpu, chosen, driver_version, list_gpus
from seatrial.machine.host import host
from seatrial.machine.interpreter import interpreter_of
from seatrial.records.command import Provenance

# Of these the set of values counts: the same kind of card in another slot, or one more of it, is no other machine.
GPU_FIELDS = ("gpu_name", "gpu_cc", "gpu_power_limit_w")
# Two runs are averaged only when these are alike. Not among them: the serial numbers of GPUs (a like card is a like card) and
# git_dirty (results written beside the code must not part two repeats).
FINGERPRINT_FIELDS = (
    "host",
    *GPU_FIELDS,
    "driver_version",
    "git_commit_hash",
    "python",
    "variables",
)
FINGERPRINT_PACKAGES = ("torch",)
FINGERPRINT_LENGTH = 12


def gather(
    cwd: Path,
    devices: Sequence[str],
    program: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    tuning: Mapping[str, str] = MappingProxyType({}),
) -> Provenance:
    """The machine, the code in `cwd` and the run's Python as they are now.

    `devices` (indices or UUIDs) narrows the GPUs to those of the run; `program` is the run's command, none meaning this interpreter;
    `env` is every variable the run gets, the caller's own when it is None; `tuning` are those of the caller's that tune it.
    """
    variables = os.environ if env is None else env
    machine, git, gpus = host(), git_state(cwd), visible_gpus(devices, variables)
    interpreter = interpreter_of(program, cwd, variables)
    found = Provenance(
        host=machine.name,
        platform=machine.platform,
        python=interpreter.python,
        packages=dict(interpreter.packages),
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
        variables=dict(tuning),
    )
    return replace(found, fingerprint=fingerprint(found))


def fingerprint(provenance: Provenance) -> str:
    """Short hash over FINGERPRINT_FIELDS and the versions of FINGERPRINT_PACKAGES."""
    facts: dict[str, object] = {name: getattr(provenance, name) for name in FINGERPRINT_FIELDS}
    facts.update({name: _kinds(getattr(provenance, name)) for name in GPU_FIELDS})
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


def _kinds(column: str) -> list[str]:
    """The different values of a column such as `0:9.0;1:9.0`, without the slots."""
    return sorted({re.sub(r"^\d+:", "", value) for value in column.split(";")})


def _joined_when_unlike(values: Sequence[str]) -> str:
    return ";".join(values) if len(set(values)) > 1 else "".join(values[:1])


def _power(gpu: Gpu) -> str:
    return "" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.2f}"
