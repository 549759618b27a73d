"""A job as users start it with deepspeed: it takes --local_rank, prints its steps, and does not import Seatrial. Standard library only.

deepspeed --num_gpus 2 ds_job.py --bs 2 [--steps 30] [--wait-for FILE] [--ignore-signals]
"""

import argparse
import os
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, required=True)
parser.add_argument("--bs", type=int, default=2)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--wait-for", type=Path, help="after the last step, wait until this file exists")
parser.add_argument("--ignore-signals", action="store_true", help="ignore TERM and INT")
args = parser.parse_args()

rank = int(os.environ["RANK"])
assert rank == args.local_rank and os.environ["WORLD_SIZE"] == "2"
if args.ignore_signals:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
for step in range(args.steps):
    time.sleep(0.005 * args.bs)
    if rank == 0:
        print(f"iter {step}: loss {3 / (step + 1):.4f}, time {5 * args.bs:.2f}ms, mfu -100.00%")
while args.wait_for and not args.wait_for.exists():
    time.sleep(0.05)
print(f"rank {rank} took {args.steps} steps")
