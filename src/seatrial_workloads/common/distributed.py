"""Ranks and their process group. In: the launcher's variables, the wanted device, the probe that times it. Out: Ranks, and a clean end.

gloo between CPUs, NCCL between GPUs; a single process needs no group, unless a library insists (`ensure_group`). The device follows
LOCAL_RANK: the global rank would name a GPU that does not exist on the second node.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from seatrial.probe import Probe
from seatrial_workloads.common.startup_error import StartupError

# A group that waits for a rank that is gone is left after so long; launchers kill what is left a little later.
LONGEST_END_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among all."""

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

    def largest(self, values: Sequence[float]) -> list[float]:
        """Of each number, the largest that any rank gave; all ranks must ask."""
        if self.world_size == 1:
            return list(values)
        gathered = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(gathered, op=dist.ReduceOp.MAX)
        return [float(value) for value in gathered.tolist()]


@contextlib.contextmanager
def joined_ranks(device_wanted: str, probe: Probe) -> Iterator[Ranks]:
    """The process group around a training. After an error among several ranks it ends with the process, when the error has been printed:
    an end that fails or hangs, for ranks that never come, must not keep the reason back."""
    with probe.startup("process_group"):
        ranks = _join(device_wanted)
    try:
        yield ranks
    except BaseException:
        if ranks.world_size > 1:
            atexit.register(_end_group_in_time)
        elif dist.is_initialized():
            dist.destroy_process_group()
        raise
    if dist.is_initialized():
        # gloo aborts now and then when the group ends before a model that still uses it, or on one rank before the other.
        gc.collect()
        ranks.barrier()
        dist.destroy_process_group()


def _end_group_in_time() -> None:
    ending = threading.Thread(target=dist.destroy_process_group, daemon=True)
    ending.start()
    ending.join(LONGEST_END_S)


def ensure_group(ranks: Ranks) -> None:
    """A process group also for a rank alone: DeepSpeed cannot do without one. It needs no port, and `joined_ranks` ends it."""
    if not dist.is_initialized():
        _init_group(ranks.device, store=dist.HashStore(), rank=0, world_size=1)


def lowest_capability(ranks: Ranks) -> tuple[int, int] | None:
    """Of the GPUs of all ranks, so that all of them decide alike; None on CPUs. All ranks must ask."""
    if ranks.device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(ranks.device)
    # One number for both, and its negative, since what is found is the largest.
    negative = ranks.largest([-(100 * major + minor)])[0]
    return divmod(int(-negative), 100)


def _join(device_wanted: str) -> Ranks:
    # torch's own variables alone: in a batch script Slurm's name tasks that nobody has started.
    local_rank, world_size = int(os.environ.get("LOCAL_RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    device = _device(device_wanted, local_rank)
    if world_size > 1:
        _init_group(device)
    return Ranks(rank=int(os.environ.get("RANK") or 0), local_rank=local_rank, world_size=world_size, device=device)


def _init_group(device: torch.device, **rendezvous: Any) -> None:
    on_gpu = device.type == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None, **rendezvous)


def _device(wanted: str, local_rank: int) -> torch.device:
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        if "OMP_NUM_THREADS" not in os.environ:
            # Ranks that each take every core slow one another down.
            torch.set_num_threads(1)
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise StartupError("device is cuda, but torch sees no GPU here: install a CUDA build of torch, or use device=auto or cpu")
    num_gpus = torch.cuda.device_count()
    if local_rank >= num_gpus:
        raise StartupError(
            f"local rank {local_rank} has no GPU ({num_gpus} visible): start fewer ranks a node or widen CUDA_VISIBLE_DEVICES"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
