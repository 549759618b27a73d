"""/dev/shm against what loader workers and NCCL will put there; a container often has 64 MiB of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.machine.shared_memory import SHARED_MEMORY
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.units import format_bytes

# Batches that a worker has made ahead wait there; so do NCCL's buffers between the GPU ranks of one host.
BYTES_OF_A_WORKER = 32 << 20
BYTES_OF_A_GPU_RANK = 64 << 20
LEAST_BYTES = 256 << 20

ROOM = Question(
    name="shared memory",
    looks_at="size and free space of /dev/shm against loader workers and GPU ranks",
    prevents="RuntimeError: DataLoader worker (pid …) is killed by signal: Bus error. It is possible that dataloader's workers are out "
    "of shared memory",
    fix="docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory on /dev/shm; else `df -h /dev/shm` and "
    "remove what dead jobs left there",
)
QUESTIONS = (ROOM,)


@dataclass(frozen=True, kw_only=True)
class ShmFacts:
    """What /dev/shm has; no bytes where there is none."""

    total_bytes: int = 0
    free_bytes: int = 0


def checks(need: Need) -> Iterator[Check]:
    yield room(read_shm(), need)


def read_shm(folder: Path = SHARED_MEMORY) -> ShmFacts:
    try:
        state = os.statvfs(folder)
    except OSError:
        return ShmFacts()
    return ShmFacts(total_bytes=state.f_blocks * state.f_frsize, free_bytes=state.f_bavail * state.f_frsize)


def room(shm: ShmFacts, need: Need) -> Check:
    found = f"{format_bytes(shm.free_bytes)} free of {format_bytes(shm.total_bytes)}" if shm.total_bytes else "there is no /dev/shm"
    wanted = wanted_bytes(need)
    if need.planned:
        who = f"{need.workers} loader workers" if need.workers else "no loader workers that the plan tells of"
        found += f"; {who}, {format_bytes(wanted)} wanted"
    return ROOM.answer(shm.free_bytes >= wanted, found)


def wanted_bytes(need: Need) -> int:
    """What the plan's runs may put there at once; without a plan, what a usual job does."""
    if not need.planned:
        return LEAST_BYTES
    gpu_ranks = max((len(spec.place.devices) for spec in need.runs), default=0)
    shared_by_gpus = BYTES_OF_A_GPU_RANK * gpu_ranks if gpu_ranks > 1 else 0
    return (max(LEAST_BYTES, BYTES_OF_A_WORKER * need.workers) if need.workers else 0) + shared_by_gpus
