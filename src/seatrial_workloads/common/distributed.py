"""Ranks, their process group, and what a rank trains with. In: the launcher's variables, the requested device. Out: Ranks or RankContext,
and a clean shutdown.

gloo for CPUs, NCCL for GPUs; a single process has no group unless a library needs one (`ensure_process_group`). The device follows
LOCAL_RANK: the global rank would name a GPU that does not exist on the second node.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import gc
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from seatrial.probe import Probe
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.train_log import TimingLines, TrainLog

# Destroying a group waits for ranks that may be gone; launchers kill the process a little later anyway.
DESTROY_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process's place among all ranks."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device

    @property
    def device_name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world_size > 1:
            dist.barrier()

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """Element-wise maximum over all ranks; a collective call."""
        if self.world_size == 1:
            return list(values)
        gathered = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(gathered, op=dist.ReduceOp.MAX)
        return [float(value) for value in gathered.tolist()]

    def agreed_problem(self, problem: str | None, of_another: str) -> str | None:
        """This rank's problem, or `of_another` where only another rank has one; None where no rank has any. A collective call: all ranks
        fall back or none does, since ranks that compute differently would drift apart."""
        return (problem or of_another) if self.all_reduce_max([float(problem is not None)])[0] else None


class RankContext(NamedTuple):
    """What a rank trains with."""

    run_dir: Path
    probe: Probe
    ranks: Ranks
    log: TrainLog


@contextlib.contextmanager
def rank_context(run_dir: Path, device: str, steps: int, group_timeout_s: float | None = None) -> Iterator[RankContext]:
    """The order matters: the probe times the joining of the process group, and the log needs the rank."""
    with Probe(run_dir) as probe, process_group(device, probe, group_timeout_s) as ranks:
        timing = TimingLines(ranks.rank, steps, probe.recent, ranks.all_reduce_max)
        with TrainLog(run_dir, ranks.rank, timing) as log:
            yield RankContext(run_dir, probe, ranks, log)


@contextlib.contextmanager
def process_group(device: str, probe: Probe, timeout_s: float | None = None) -> Iterator[Ranks]:
    """The process group around a training; `timeout_s` is that of a collective, None for torch's own. After an error with several ranks it
    is destroyed at exit, when the error has been printed: a shutdown that hangs must not hide the reason."""
    with probe.startup("process_group"):
        ranks = _join(device, timeout_s)
    try:
        yield ranks
    except BaseException:
        if ranks.world_size > 1:
            atexit.register(_destroy_group_with_timeout)
        elif dist.is_initialized():
            dist.destroy_process_group()
        raise
    if dist.is_initialized():
        # gloo sometimes aborts when the group ends before a model that still uses it, or on one rank before the other.
        gc.collect()
        ranks.barrier()
        dist.destroy_process_group()


def _destroy_group_with_timeout() -> None:
    ending = threading.Thread(target=dist.destroy_process_group, daemon=True)
    ending.start()
    ending.join(DESTROY_TIMEOUT_S)


def ensure_process_group(ranks: Ranks) -> None:
    """A process group for a single rank too, which DeepSpeed needs. It uses no port, and `process_group` destroys it."""
    if not dist.is_initialized():
        _init_group(ranks.device, store=dist.HashStore(), rank=0, world_size=1)


def lowest_capability(ranks: Ranks) -> tuple[int, int] | None:
    """The lowest compute capability of all ranks, so that all decide the same; None on CPUs. A collective call."""
    if ranks.device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(ranks.device)
    # Negative, since the reduction is a maximum.
    negative = ranks.all_reduce_max([-(100 * major + minor)])[0]
    return divmod(int(-negative), 100)


def _join(device: str, timeout_s: float | None) -> Ranks:
    # Only torch's variables: in a batch script Slurm's count tasks that were never started.
    local_rank, world_size = int(os.environ.get("LOCAL_RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    chosen = _device(device, local_rank)
    if world_size > 1:
        _init_group(chosen, timeout=None if timeout_s is None else datetime.timedelta(seconds=timeout_s))
    return Ranks(rank=int(os.environ.get("RANK") or 0), local_rank=local_rank, world_size=world_size, device=chosen)


def _init_group(device: torch.device, **rendezvous: Any) -> None:
    on_gpu = device.type == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None, **rendezvous)


def _device(requested: str, local_rank: int) -> torch.device:
    if requested == "cpu" or (requested == "auto" and not torch.cuda.is_available()):
        if "OMP_NUM_THREADS" not in os.environ:
            # Ranks that each use every core slow one another down.
            torch.set_num_threads(1)
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise StartupError("device is cuda, but torch sees no GPU here: install a CUDA build of torch, or use device=auto or cpu")
    num_gpus = torch.cuda.device_count()
    if local_rank >= num_gpus:
        raise StartupError(
            f"local rank {local_rank} has no GPU ({num_gpus} visible): start fewer ranks per node or extend CUDA_VISIBLE_DEVICES"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
