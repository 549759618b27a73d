"""What tests of the loaders pass in: ranks of one machine, and the frames of wav2vec2-base."""

from __future__ import annotations

import torch

from seatrial_workloads.common.distributed import Ranks


def cpu_ranks(rank: int = 0, world_size: int = 1) -> Ranks:
    return Ranks(rank=rank, local_rank=rank, world_size=world_size, device=torch.device("cpu"))


def num_frames(num_samples: int) -> int:
    """Frames that wav2vec2-base's front end makes of so many samples."""
    for kernel, stride in zip((10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2), strict=True):
        num_samples = (num_samples - kernel) // stride + 1
    return num_samples
