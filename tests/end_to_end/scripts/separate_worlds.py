"""Ranks that ignore what the launcher says: each forms a world of its own, and trains by itself.

torchrun --standalone --nproc_per_node 2 separate_worlds.py
"""

import time

import torch.distributed as dist

from seatrial.probe import Probe

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
with Probe() as probe:
    for _ in range(1000):
        with probe.step(samples=1):
            time.sleep(0.05)
dist.destroy_process_group()
