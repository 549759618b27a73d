"""What an attempt ran on: host, GPUs, driver, code and versions, in the seeds' columns, with a fingerprint over what must be alike.

Python, packages, CUDA, cuDNN and NCCL are those of the run's own interpreter. Gathered before every attempt, so it takes milliseconds:
what cannot change in a process is read once, and another interpreter is asked once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from seatrial.machine.container import container
from seatrial.machine.cuda_versions import cuda_versions
from seatrial.machine.fingerprint import fingerprint
from seatrial.machine.git import git_state
from seatrial.machine.gpus import Gpu, read_driver, visible_gpus
from seatrial.machine.host import host
from seatrial.machine.interpreter import interpreter_of
from seatrial.machine.network import network_interfaces
from seatrial.machine.secrets import mask
from seatrial.records.command import Provenance

NOTHING: Mapping[str, str] = MappingProxyType({})


def gather(
    cwd: Path,
    devices: Sequence[str],
    program: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    tuning: Mapping[str, str] = NOTHING,
    *,
    environment: Mapping[str, str] = NOTHING,
    plan_hash: str = "",
    output: Path | None = None,
    code: Path | None = None,
) -> Provenance:
    """The machine, the code in `cwd` and the run's Python as they are now.

    `devices` (indices or UUIDs) narrows the GPUs to those of the run; `program` is the run's command, none meaning this interpreter;
    `env` is every variable the run gets, the caller's own when it is None; `tuning` are those of the caller's that tune it, and
    `environment` those that are to be recorded: both are masked here. `output` is the campaign's folder, whose files are not code;
    `code` is where the run's script lies, if not in `cwd`.
    """
    variables = os.environ if env is None else env
    machine, git, interpreter = host(), git_state(code or cwd, output), interpreter_of(program, cwd, variables)
    driver = read_driver()
    versions = cuda_versions(interpreter.torch_cuda, interpreter.packages, variables, driver.cuda)
    found = Provenance(
        host=machine.name,
        platform=machine.platform,
        python=interpreter.python,
        packages=dict(interpreter.packages),
        cpu=machine.cpu,
        cpu_count=machine.cpu_count,
        memory_bytes=machine.memory_bytes,
        driver_version=driver.version,
        git_commit_hash=git.commit,
        git_branch=git.branch,
        git_dirty=git.dirty,
        git_diff_sha256=git.diff_sha256,
        cuda=versions.cuda,
        cudnn=versions.cudnn,
        nccl=versions.nccl,
        nics=network_interfaces(),
        container=container(),
        environment=_masked(environment),
        plan_hash=plan_hash,
        variables=_masked(tuning),
    )
    found = _with_gpus(found, visible_gpus(driver.gpus, devices, variables))
    return replace(found, fingerprint=fingerprint(found))


def _with_gpus(provenance: Provenance, gpus: Sequence[Gpu]) -> Provenance:
    """The columns that the GPUs fill: one value a card, or one for all where they are alike and the seeds write it so."""
    return replace(
        provenance,
        gpu_name=_joined_when_unlike([gpu.name for gpu in gpus]),
        gpu_cc=_each(gpus, lambda gpu: f"{gpu.index}:{gpu.compute_capability}" if gpu.compute_capability else ""),
        gpu_uuid_list=_each(gpus, lambda gpu: gpu.uuid),
        gpu_power_limit_w=_each(gpus, lambda gpu: _watts(gpu.power_limit_w)),
        gpu_power_default_w=_each(gpus, lambda gpu: _watts(gpu.power_default_w)),
        gpu_clocks=_each(gpus, _clocks),
        pcie_gen=_joined_when_unlike([_number(gpu.pcie_gen_max) for gpu in gpus]),
    )


def _each(gpus: Sequence[Gpu], column: Callable[[Gpu], str]) -> str:
    values = [column(gpu) for gpu in gpus]
    return ";".join(values) if any(values) else ""


def _joined_when_unlike(values: Sequence[str]) -> str:
    return ";".join(values) if len(set(values)) > 1 else "".join(values[:1])


def _clocks(gpu: Gpu) -> str:
    sm, memory = _number(gpu.sm_clock_max_mhz), _number(gpu.memory_clock_max_mhz)
    return f"{gpu.index}:{sm}/{memory}" if sm or memory else ""


def _watts(power_w: float | None) -> str:
    return "" if power_w is None else f"{power_w:.2f}"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _masked(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: mask(name, value) for name, value in sorted(variables.items())}
