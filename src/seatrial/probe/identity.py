"""Which run, attempt and rank this process is, and its process group. In: arguments of Probe, the environment, torch.distributed where it
is imported. Out: an `Identity`, None for a silent probe; the fields of the event `process_group`."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.probe.cuda import torch_with_cuda
from seatrial.probe.stacks import DEFAULT_STACK_SIGNAL
from seatrial.records import events

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
RANK_SCOPES = ("all", "rank0")
DEFAULT_WINDOW = 100
OWN_STAT = Path("/proc/self/stat")
START_TIME_FIELD = 19
"""Field of /proc/PID/stat, counted after the name: ticks from boot to the start of the process."""
TRUE_TEXTS = ("1", "true", "yes", "on")
FALSE_TEXTS = ("", "0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What every line of this process contains, and which lines it writes."""

    run_dir: Path
    run: str
    attempt: int
    rank: int
    world_size: int
    rank_scope: str
    sync: bool
    phase_every: int
    timing_window: int
    launched_by: str
    host: str
    pid: int
    stack_signal: str = DEFAULT_STACK_SIGNAL
    """As requested, not yet validated."""
    process_t: float | None = None
    """Wall clock at which this process started; None where /proc does not have it."""
    local_rank: int | None = None
    """None where the launcher does not set it."""
    gpu: str | None = None
    """None on CPU, and where it is not known yet."""

    @property
    def writes_steps(self) -> bool:
        return self.rank_scope == "all" or self.rank == 0


def identify(
    run_dir: str | Path | None,
    *,
    run: str | None = None,
    attempt: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    rank_scope: str | None = None,
    sync: bool | None = None,
    phase_every: int | None = None,
    env: Mapping[str, str] = os.environ,
) -> Identity | None:
    """The identity by the arguments, else the environment, else as a single local process; None if no files are wanted."""
    folder = run_dir or env.get(events.ENV_RUN_DIR)
    if not folder or is_loader_worker():
        return None
    path = Path(folder).absolute()
    found_rank, found_world_size = rank_and_world_size(env)
    local_rank = local_rank if local_rank is not None else local_rank_of(env)
    return Identity(
        run_dir=path,
        run=run or env.get(events.ENV_RUN) or path.name,
        attempt=attempt if attempt is not None else integer_variable(env, events.ENV_ATTEMPT, 1),
        rank=rank if rank is not None else found_rank,
        world_size=world_size if world_size is not None else found_world_size,
        rank_scope=_scope(rank_scope or env.get(events.ENV_RANK_SCOPE) or "all"),
        sync=sync if sync is not None else _flag(env, events.ENV_SYNC_TIMING),
        phase_every=_at_least_one(
            "phase_every", phase_every if phase_every is not None else integer_variable(env, events.ENV_PHASE_EVERY, 10)
        ),
        timing_window=_at_least_one("the timing window", integer_variable(env, events.ENV_TIMING_WINDOW, DEFAULT_WINDOW)),
        launched_by=_launched_by(env),
        host=socket.gethostname(),
        pid=os.getpid(),
        stack_signal=env.get(events.ENV_STACK_SIGNAL, DEFAULT_STACK_SIGNAL),
        process_t=process_t(),
        local_rank=local_rank,
        gpu=gpu_of(local_rank, env),
    )


def rank_and_world_size(env: Mapping[str, str]) -> tuple[int, int]:
    """Rank and size from torchrun's variables, else Slurm's, else Open MPI's, else torch's process group; (0, 1) for a single process."""
    for rank_name, world_size_name, _ in events.RANK_VARIABLES:
        if env.get(rank_name):
            rank = integer_variable(env, rank_name, 0)
            return rank, integer_variable(env, world_size_name, rank + 1)
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        return int(group.get_rank()), int(group.get_world_size())
    return 0, 1


def process_group(env: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """The default group of torch.distributed as this rank sees it; None while there is none. Asks torch only where it is imported."""
    group = sys.modules.get("torch.distributed")
    try:
        if group is None or not group.is_available() or not group.is_initialized():
            return None
        backend = str(group.get_backend())
        # A backend for each kind of device has no name of its own.
        backend = str(group.get_backend_config()) if backend == "undefined" else backend
        size = int(group.get_world_size())
    except Exception:
        # It may be initialised or destroyed at this very moment, and other versions may lack a function: the next look may succeed.
        return None
    is_gloo = "gloo" in backend and "nccl" not in backend
    transport = env.get("GLOO_DEVICE_TRANSPORT") or "TCP" if is_gloo else None
    interface = env.get("GLOO_SOCKET_IFNAME" if is_gloo else "NCCL_SOCKET_IFNAME") or None
    return {"backend": backend, "size": size, "transport": transport, "interface": interface}


def local_rank_of(env: Mapping[str, str]) -> int | None:
    """Local rank by the launcher that set the rank; 0 for a single process, None where the launcher does not set it."""
    name = next((local_rank_name for rank_name, _, local_rank_name in events.RANK_VARIABLES if env.get(rank_name)), None)
    # Lightning starts its own processes, and sets LOCAL_RANK alone.
    text = env.get(name or "LOCAL_RANK", "")
    if name is None and not text:
        return 0
    # It only helps to find a slow GPU: an invalid one must not stop the training.
    return int(text) if text.isdecimal() else None


def gpu_of(local_rank: int | None, env: Mapping[str, str]) -> str | None:
    """The rank's entry of CUDA_VISIBLE_DEVICES, else its local rank; None on CPU, and without the variable while CUDA is not initialised:
    a wrong one is worse."""
    if local_rank is None:
        return None
    shown = env.get(VISIBLE_GPUS)
    if shown is None:
        return None if torch_with_cuda() is None else str(local_rank)
    # CUDA itself stops at the first invalid entry, so `-1` hides what follows.
    gpus = list(itertools.takewhile(lambda gpu: gpu not in ("", "-1", "NoDevFiles"), (gpu.strip() for gpu in shown.split(","))))
    if len(gpus) == 1:
        # Every rank is shown a single GPU of its own.
        return gpus[0]
    return gpus[local_rank] if local_rank < len(gpus) else None


def process_t(stat: Path = OWN_STAT) -> float | None:
    """When this process started, by the wall clock as it is now, to a hundredth of a second."""
    try:
        # The program's name may contain spaces and parentheses; after its last parenthesis there are only numbers.
        started_ticks = int(stat.read_text(errors="replace").rpartition(")")[2].split()[START_TIME_FIELD])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.time() - age_s if started_ticks > 0 and age_s >= 0 else None


def is_loader_worker() -> bool:
    """Whether this is a daemonic child of multiprocessing: a loader's worker that imported the user's script again, not a rank."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(process.current_process().daemon)


def _launched_by(env: Mapping[str, str]) -> str:
    if "TORCHELASTIC_RUN_ID" in env:
        return "torchrun"
    if env.get("RANK"):
        # Only deepspeed's launcher sets this variable.
        return "deepspeed" if env.get("LOCAL_SIZE") else "environment"
    if env.get("SLURM_PROCID"):
        return "slurm"
    return "mpi" if env.get("OMPI_COMM_WORLD_RANK") else "python"


def integer_variable(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is '{text}'; expected an integer: correct it or unset it") from None


def _flag(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip().lower()
    if text in TRUE_TEXTS:
        return True
    if text in FALSE_TEXTS:
        return False
    raise ValueError(f"{name} is '{text}'; expected 1 or 0")


def _scope(scope: str) -> str:
    if scope not in RANK_SCOPES:
        raise ValueError(f"rank_scope is '{scope}'; expected one of {', '.join(RANK_SCOPES)}")
    return scope


def _at_least_one(name: str, steps: int) -> int:
    if steps < 1:
        raise ValueError(f"{name} is {steps}; expected 1 (every step) or more")
    return steps
