"""Provenance of an attempt: host, GPUs, driver, code and versions, in stage 1's columns, with a fingerprint over what must be equal for
two runs to be averaged; and which environment variables are recorded.

In: the run's folder, devices, command and environment. Out: a `Provenance`. Gathered before every attempt in milliseconds: constant facts
are read once per process. docs/files.md explains "The fingerprint": what is in it, what is not, and why.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from seatrial.machine.gpus import Gpu, read_driver, visible_gpus
from seatrial.machine.host import detect_container, read_host
from seatrial.machine.network import describe_interfaces
from seatrial.machine.secrets import MASK, is_ordinary_value, mask
from seatrial.machine.software import find_cuda_versions, find_interpreter, read_git_state
from seatrial.records.attempt import HostFacts, Provenance

# Variables that tune a run: another value is another condition, and runs under different conditions are not averaged.
TUNING_PREFIXES = (
    "NCCL_", "GLOO_", "UCX_", "TORCH_", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NVTE_", "XLA_", "NSA_",
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "MALLOC_",
)  # fmt: skip
# All variables that can change how a job runs. The others reach the ranks too, and are private.
RECORDED_PREFIXES = (
    *TUNING_PREFIXES,
    "TORCH",
    "NVIDIA_",
    "NSYS_",
    "NVTX_",
    "TRITON_",
    "HF_",
    "TRANSFORMERS_",
    "TOKENIZERS_",
    "DS_",
    "DEEPSPEED_",
    "ACCELERATE_",
    "VLLM_",
    "MASTER_",
    "PYTHON",
    "LD_",
)
RECORDED_NAMES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "ENABLE_CUDA_SYNC_TIMING",
)
# Set in a plan, they locate programs and files of a run.
SHOWN_OF_PLANS = frozenset({"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ"})
# Locations, and which cards are visible: the cards themselves are in the fingerprint already.
NOT_TUNING = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME", "NCCL_DEBUG_FILE"})
# Of these the set of values counts: the same model of card in another slot, or one more of it, is the same machine.
GPU_FIELDS = ("gpu_name", "gpu_cc", "gpu_power_limit_w")
# Not among them: GPU UUIDs (an equal card is an equal card), addresses, and git_dirty (git_diff_sha256 is more precise).
FINGERPRINT_FIELDS = (
    "host",
    "platform",
    "cpu",
    "cpu_count",
    "container",
    *GPU_FIELDS,
    "driver_version",
    "cuda",
    "cudnn",
    "nccl",
    "python",
    "git_commit_hash",
    "git_diff_sha256",
    "variables",
)
# Packages that run in the step: another version is other code.
FINGERPRINT_PACKAGES = (
    "accelerate",
    "apex",
    "bitsandbytes",
    "deepspeed",
    "flash-attn",
    "flash-linear-attention",
    "lightning",
    "megatron-core",
    "peft",
    "pytorch-lightning",
    "torch",
    "transformer-engine",
    "transformers",
    "triton",
    "vllm",
    "xformers",
)
HASH_LENGTH = 12
# Facts that identify one host of many and do not describe its hardware.
HOST_IDENTITY_FIELDS = frozenset(
    {"host", "hostname", "name", "addresses", "nics", "gpu_uuid_list", "memory_bytes", "boot_id", "pid", "user"}
)
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


def is_recorded_variable(name: str) -> bool:
    """Whether a variable of the base environment is recorded."""
    return name.startswith(RECORDED_PREFIXES) or name in RECORDED_NAMES


def mask_planned(env: Mapping[str, str], settings: Iterable[object]) -> dict[str, str]:
    """What a plan adds to the environment, as it is recorded. Values are shown of variables that are recorded of the base environment
    too, of switches and counts, and where the value also stands in a setting; any other may be a secret that nothing shows to be one."""
    shown = {str(value) for value in settings} | {value for name, value in env.items() if is_ordinary_value(name, value)}
    return {
        name: mask(name, value) if name in SHOWN_OF_PLANS or is_recorded_variable(name) or value in shown or not value else MASK
        for name, value in env.items()
    }


def tuning_of(base_env: Mapping[str, str], set_by_plan: Mapping[str, str]) -> dict[str, str]:
    """The base environment's variables that tune a run, secrets masked; those the plan sets are part of the run's own identity."""
    return {
        name: mask(name, value)
        for name, value in sorted(base_env.items())
        if name.startswith(TUNING_PREFIXES) and name not in NOT_TUNING and name not in set_by_plan
    }


def gather_provenance(
    cwd: Path,
    devices: Sequence[str],
    program: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    tuning: Mapping[str, str] = NO_VARIABLES,
    *,
    environment: Mapping[str, str] = NO_VARIABLES,
    plan_hash: str = "",
    output: Path | None = None,
    code: Path | None = None,
) -> Provenance:
    """The machine, the code in `cwd` and the run's Python as they are now.

    `devices` (indices or UUIDs) limits the GPUs to those of the run; `program` is the run's argv, an empty one means this interpreter;
    `env` is every variable the run gets, the base environment when it is None; `tuning` are those of it that tune the run, and
    `environment` those to be recorded: both are masked here. `output` is the campaign's folder, whose files are not code; `code` is where
    the run's script is, if not in `cwd`.
    """
    variables = os.environ if env is None else env
    host, git, interpreter = read_host(), read_git_state(code or cwd, output), find_interpreter(program, cwd, variables)
    driver = read_driver()
    versions = find_cuda_versions(interpreter.torch_cuda, interpreter.packages, variables, driver.cuda)
    gpus = visible_gpus(driver.gpus, devices, variables)
    found = Provenance(
        host=host.name,
        platform=host.platform,
        python=interpreter.python,
        packages=dict(interpreter.packages),
        cpu=host.cpu,
        cpu_count=host.cpu_count,
        memory_bytes=host.memory_bytes,
        driver_version=driver.version,
        git_commit_hash=git.commit,
        git_branch=git.branch,
        git_dirty=git.dirty,
        git_diff_sha256=git.diff_sha256,
        cuda=versions.cuda,
        cudnn=versions.cudnn,
        nccl=versions.nccl,
        nics=describe_interfaces(),
        container=detect_container(),
        environment=_mask_all(environment),
        plan_hash=plan_hash,
        variables=_mask_all(tuning),
        # One value a card, or one for all where they are equal and stage 1 writes it so.
        gpu_name=_join_distinct([gpu.name for gpu in gpus]),
        gpu_cc=_join_gpus(gpus, lambda gpu: f"{gpu.index}:{gpu.compute_capability}" if gpu.compute_capability else ""),
        gpu_uuid_list=_join_gpus(gpus, lambda gpu: gpu.uuid),
        gpu_power_limit_w=_join_gpus(gpus, lambda gpu: _watts(gpu.power_limit_w)),
        gpu_power_default_w=_join_gpus(gpus, lambda gpu: _watts(gpu.power_default_w)),
        gpu_clocks=_join_gpus(gpus, _clocks),
        pcie_gen=_join_distinct([_number(gpu.pcie_gen_max) for gpu in gpus]),
    )
    return replace(found, fingerprint=compute_fingerprint(found))


def compute_fingerprint(provenance: Provenance) -> str:
    """Short hash over `fingerprint_facts`."""
    return short_hash(fingerprint_facts(provenance))


def fingerprint_facts(provenance: Provenance) -> dict[str, Any]:
    """Name → value of every fact that counts, in the form that counts."""
    facts: dict[str, Any] = {name: getattr(provenance, name) for name in FINGERPRINT_FIELDS}
    facts.update({name: _distinct_values(getattr(provenance, name)) for name in GPU_FIELDS})
    # A restarted container has another id.
    facts["container"] = provenance.container.partition(" ")[0]
    facts["packages"] = {name: provenance.packages[name] for name in FINGERPRINT_PACKAGES if name in provenance.packages}
    if provenance.hosts:
        # Another host with the same hardware is the same machine. Left out without hosts, so that older hashes stay valid.
        facts["hosts"] = sorted({json.dumps(host_hardware(host), sort_keys=True) for host in provenance.hosts.values()})
    return facts


def host_hardware(host: Mapping[str, str]) -> dict[str, str]:
    """A host's facts without those that identify it."""
    return {name: str(value) for name, value in host.items() if name not in HOST_IDENTITY_FIELDS}


def fingerprint_differences(before: Provenance, after: Provenance) -> dict[str, tuple[str, str]]:
    """The facts in which two fingerprints differ, with both values, empty where there is none: `torch` → `2.12.0`, `2.13.0`."""
    old, new = (_flatten(fingerprint_facts(provenance)) for provenance in (before, after))
    return {name: (old.get(name, ""), new.get(name, "")) for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)}


def with_host_facts(gathered: Provenance, names: Sequence[str], hosts: Mapping[str, HostFacts]) -> Provenance:
    """What was gathered here, as it is for a run on the hosts `names`: the machine is node 0's, since the harness need not run on one of
    the hosts, and each host's hardware and software is recorded too, so that different ones are not averaged."""
    known = {name: hosts[name] for name in names if name in hosts}
    if not known:
        return gathered
    first = known.get(names[0])
    machine = gathered if first is None else _on_node_0(first, gathered)
    provenance = replace(machine, hosts={name: _host_identity(facts) for name, facts in known.items()})
    return replace(provenance, fingerprint=compute_fingerprint(provenance))


NOT_OF_NODE_0 = ("gpu_cc", "gpu_power_limit_w", "container")
"""Facts of the fingerprint that are known of node 0 only where the harness runs there."""


def _on_node_0(first: HostFacts, gathered: Provenance) -> Provenance:
    """Node 0's facts; those that were not gathered there are empty instead of this machine's."""
    if first.host == gathered.host:
        return gathered
    return replace(
        gathered,
        host=first.host,
        platform=first.platform,
        cpu=first.cpu,
        cpu_count=first.cpu_count,
        memory_bytes=first.memory_bytes,
        gpu_name=";".join(dict.fromkeys(first.gpus)),
        driver_version=first.driver_version,
        python=first.python or gathered.python,
        packages=dict(first.packages) or gathered.packages,
        nics={name: ", ".join(addresses) for name, addresses in first.interfaces.items()},
        gpu_cc="",
        gpu_uuid_list="",
        gpu_power_limit_w="",
        gpu_power_default_w="",
        gpu_clocks="",
        pcie_gen="",
        container="",
    )


def _host_identity(facts: HostFacts) -> dict[str, str]:
    """What two identical hosts have in common, and the host's name."""
    packages = " ".join(f"{name}={version}" for name, version in sorted(facts.packages.items()))
    return {
        "host": facts.host,
        "cpu": facts.cpu,
        "cpu_count": str(facts.cpu_count),
        "memory_bytes": str(facts.memory_bytes),
        "gpu_name": ";".join(facts.gpus),
        "driver_version": facts.driver_version,
        "platform": facts.platform,
        "python": facts.python,
        "packages": packages,
    }


def short_hash(value: Any) -> str:
    """The first digits of a hash over a JSON value, independent of key order."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:HASH_LENGTH]


def _flatten(facts: Mapping[str, Any]) -> dict[str, str]:
    """Every fact under its own name, as text."""
    flat: dict[str, str] = {}
    for name, value in facts.items():
        flat.update(value if isinstance(value, dict) else {name: ";".join(value) if isinstance(value, list) else str(value)})
    return flat


def _distinct_values(column: str) -> list[str]:
    """The distinct values of a column such as `0:9.0;1:9.0`, without the indices."""
    return sorted({re.sub(r"^\d+:", "", value) for value in column.split(";")})


def _join_gpus(gpus: Sequence[Gpu], column: Callable[[Gpu], str]) -> str:
    values = [column(gpu) for gpu in gpus]
    return ";".join(values) if any(values) else ""


def _join_distinct(values: Sequence[str]) -> str:
    return ";".join(values) if len(set(values)) > 1 else "".join(values[:1])


def _clocks(gpu: Gpu) -> str:
    sm, memory = _number(gpu.sm_clock_max_mhz), _number(gpu.memory_clock_max_mhz)
    return f"{gpu.index}:{sm}/{memory}" if sm or memory else ""


def _watts(power_w: float | None) -> str:
    return "" if power_w is None else f"{power_w:.2f}"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _mask_all(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: mask(name, value) for name, value in sorted(variables.items())}
