"""A real two-rank job over gloo that can be broken to order, through its own probe or as a script that only prints.

torchrun --standalone --nproc_per_node 2 gloo_job.py --steps 20 [--hang-at 5 --hang-in python|c] [--no-probe]
"""

import argparse
import ctypes
import os
import time

import torch
import torch.distributed as dist

from seatrial.probe import Probe

STEP_S = 0.02


def hang(where: str) -> None:
    if where == "c":
        # PyDLL keeps the GIL: no Python thread of this process runs any more.
        ctypes.PyDLL(None).sleep(3600)
    while True:
        time.sleep(1)


def train(args: argparse.Namespace, probe: Probe) -> None:
    weights = torch.zeros(64)
    for step in probe.data(range(args.steps)):
        with probe.step(samples=4):
            with probe.phase("fwd"):
                time.sleep(STEP_S)
                gradient = torch.randn(64)
                if step == args.hang_at and dist.get_rank() == 1:
                    hang(args.hang_in)
            with probe.phase("bwd"):
                dist.all_reduce(gradient)
            with probe.phase("step"):
                weights -= 0.1 * gradient
        probe.loss(1.0 / (step + 1))
        if args.no_probe and dist.get_rank() == 0:
            print(f"step {step}: loss {1.0 / (step + 1):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--hang-at", type=int)
    parser.add_argument("--hang-in", default="python")
    parser.add_argument("--no-probe", action="store_true")
    args = parser.parse_args()
    if args.no_probe:
        os.environ.pop("SEATRIAL_RUN_DIR", None)
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    with Probe() as probe:
        train(args, probe)
    # gloo aborts now and then when one rank leaves while another is still closing.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
