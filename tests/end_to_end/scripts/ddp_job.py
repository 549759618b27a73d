"""A real two-rank job with three lines of probe: gloo all-reduce every step, and a crash or a hang to order.

torchrun --standalone --nproc_per_node 2 ddp_job.py --width 64 --steps 20 [--crash-at 5] [--hang-at 5]
"""

import argparse
import time

import torch
import torch.distributed as dist

from seatrial.probe import Probe

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--crash-at", type=int)
parser.add_argument("--hang-at", type=int)
parser.add_argument("--step-s", type=float, default=0.0)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.set_num_threads(1)
weights = torch.zeros(args.width)
probe = Probe()
for step in range(args.steps):
    if step == args.crash_at and dist.get_rank() == 1:
        raise RuntimeError("rank 1 was told to crash")
    if step == args.hang_at and dist.get_rank() == 1:
        time.sleep(3600)
    with probe.step(samples=4):
        with probe.phase("fwd"):
            gradient = torch.randn(args.width)
            time.sleep(args.step_s)
        with probe.phase("bwd"):
            dist.all_reduce(gradient)
        with probe.phase("step"):
            weights -= 0.1 * gradient
    probe.loss(1.0 / (step + 1))
probe.close()
# gloo aborts now and then when one rank leaves while another is still closing.
dist.barrier()
dist.destroy_process_group()
