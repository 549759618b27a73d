"""Ranks on the CPU without a process group."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seatrial_workloads.common.distributed import Ranks


def cpu_ranks(rank: int = 0, world_size: int = 1, kind: type[Ranks] = Ranks) -> Ranks:
    return kind(rank=rank, local_rank=rank, world_size=world_size, device=torch.device("cpu"))


class OtherFailed(Ranks):
    """As if another rank had reported a failure in every collective call."""

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        return [1.0 for _ in values]


ALONE = cpu_ranks()
