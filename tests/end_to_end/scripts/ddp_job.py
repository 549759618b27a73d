"""A real two-rank job with three lines of probe: gloo all-reduce every step, and a crash on request.

torchrun --standalone --nproc_per_node 2 ddp_job.py --width 64 --steps 20 [--crash-at 5]
"""

import argparse

import torch
import torch.distributed as dist

from seatrial.probe import Probe

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--crash-at", type=int)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.set_num_threads(1)
weights = torch.zeros(args.width)
probe = Probe()
for step in range(args.steps):
    if step == args.crash_at and dist.get_rank() == 1:
        raise RuntimeError("requested crash of rank 1")
    with probe.step(samples=4):
        with probe.phase("fwd"):
            gradient = torch.randn(args.width)
        with probe.phase("bwd"):
            dist.all_reduce(gradient)
        with probe.phase("step"):
            weights -= 0.1 * gradient
    probe.loss(1.0 / (step + 1))
probe.close()
# gloo aborts now and then when one rank leaves while another is still closing.
dist.barrier()
dist.destroy_process_group()
