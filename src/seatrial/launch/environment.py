"""Which variables reach the ranks, and who set each.

Layers, later ones win: the caller's own environment (recorded where it can change a run), Seatrial's variables, the place's, the
plan's. A value that takes the place of a different one of the caller's keeps that one in `replaced`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.machine.deepspeed_devices import ACCELERATOR, CPU
from seatrial.machine.gpus import LIMIT
from seatrial.machine.secrets import mask
from seatrial.paths import AttemptPaths
from seatrial.records import events
from seatrial.records.command import Allocation, EnvironmentVariable
from seatrial.records.run_spec import RunSpec

# What of the caller's environment can change how a job runs; the rest reaches the ranks too, and is nobody's business.
RECORDED_PREFIXES = (
    "NCCL_",
    "GLOO_",
    "UCX_",
    "TORCH",
    "PYTORCH_",
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_",
    "NSA_",
    "NSYS_",
    "NVTE_",
    "NVTX_",
    "TRITON_",
    "XLA_",
    "HF_",
    "TRANSFORMERS_",
    "TOKENIZERS_",
    "DS_",
    "DEEPSPEED_",
    "ACCELERATE_",
    "VLLM_",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "OPENBLAS_",
    "MALLOC_",
    "MASTER_",
    "PYTHON",
    "LD_",
)
# Of these, what tunes a run: another value is another condition, and runs under unlike conditions are not averaged.
TUNING_PREFIXES = (
    "NCCL_", "GLOO_", "UCX_", "TORCH_", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NVTE_", "XLA_", "NSA_",
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "MALLOC_",
)  # fmt: skip
# Where things lie or which cards are seen: the cards themselves are in the fingerprint already.
NOT_TUNING = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME", "NCCL_DEBUG_FILE"})
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


def environment(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, caller: Mapping[str, str]) -> tuple[EnvironmentVariable, ...]:
    """Every recorded variable as the ranks get it, in name order."""
    final = {name: EnvironmentVariable(name=name, value=caller[name], set_by="caller") for name in sorted(caller) if is_recorded(name)}
    for set_by, name, value in _added(spec, allocation, attempt, caller):
        replaced = caller.get(name)
        final[name] = EnvironmentVariable(name=name, value=value, set_by=set_by, replaced=None if replaced == value else replaced)
    return tuple(final[name] for name in sorted(final))


def added(variables: tuple[EnvironmentVariable, ...]) -> dict[str, str]:
    """What is set on top of the caller's environment."""
    return {variable.name: variable.value for variable in variables if variable.set_by != "caller"}


def is_recorded(name: str) -> bool:
    """Whether a variable of the caller's is written down."""
    return name.startswith(RECORDED_PREFIXES) or name in RECORDED_NAMES


def tuning_variables(spec: RunSpec, caller: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables that tune this run, secrets masked; those the plan sets are part of the run's own identity."""
    return {
        name: mask(name, value)
        for name, value in sorted(caller.items())
        if name.startswith(TUNING_PREFIXES) and name not in NOT_TUNING and name not in spec.env
    }


def _added(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, caller: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(who, name, value), later ones win."""
    for name, value in seatrial_variables(spec, attempt).items():
        yield "seatrial", name, value
    for name, value in _defaults(spec, allocation).items():
        if name not in caller:
            yield "seatrial", name, value
    # deepspeed sets it for its ranks, from --include. Set for itself too, it may find but one GPU and refuse to be told of a second.
    if allocation.devices and spec.launcher.kind != "deepspeed":
        yield "place", LIMIT, ",".join(allocation.devices)
    for name, value in spec.env.items():
        yield "plan", name, value


def seatrial_variables(spec: RunSpec, attempt: AttemptPaths) -> dict[str, str]:
    """How the probe learns where it is."""
    return {
        events.ENV_RUN_DIR: str(attempt.folder),
        events.ENV_RUN: spec.run,
        events.ENV_ATTEMPT: str(attempt.number),
        events.ENV_RANK_SCOPE: spec.rank_scope,
        events.ENV_SYNC_TIMING: "1" if spec.timing.sync else "0",
        events.ENV_PHASE_EVERY: str(spec.timing.phase_every),
        events.ENV_TIMING_WINDOW: str(spec.timing.timing_window),
        events.ENV_STACK_SIGNAL: spec.limits.stack_signal or "none",
        events.ENV_ETA_MODE: spec.timing.eta_mode,
        events.ENV_ETA_MIN_SAMPLES: str(spec.timing.eta_min_samples),
    }


def _defaults(spec: RunSpec, allocation: Allocation) -> dict[str, str]:
    """What a caller who said nothing gets."""
    # A line that waits in a buffer arrives minutes late, and arrival times are how unmodified scripts are timed.
    # And a process that neither answers the stack signal nor can be looked into is made to tell its stacks by SIGABRT.
    wanted = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    if spec.workload.module:
        # A typing.py in the folder one happens to stand in must not take the place of the library's.
        wanted["PYTHONSAFEPATH"] = "1"
    if allocation.ranks > 1:
        # Every rank would otherwise start a thread a core; torchrun sets the same, with a warning.
        wanted["OMP_NUM_THREADS"] = "1"
    if allocation.cpu_only and spec.launcher.kind == "deepspeed":
        # It would look for every accelerator it knows, and on a host with GPUs take them for a run that is to leave them alone.
        wanted[ACCELERATOR] = CPU
    return wanted
