"""Two ranks that add up numbers, of which the second breaks: python -m tests.workloads.common.failing_rank"""

from __future__ import annotations

import torch
import torch.distributed as dist

from seatrial.probe import Probe
from seatrial_workloads.common.distributed import process_group


def main() -> None:
    with process_group("cpu", Probe()) as ranks:
        dist.all_reduce(torch.ones(4))
        if ranks.rank == 1:
            raise ValueError("this rank breaks")
        dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    main()
