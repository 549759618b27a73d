"""A training script whose variants differ in speed and in a debug switch; it prints the log lines of the seed."""

from __future__ import annotations

import argparse
import random
import time

parser = argparse.ArgumentParser()
parser.add_argument("--step_ms", type=float, required=True)
parser.add_argument("--wall_clock_breakdown", choices=("true", "false"), required=True)
args = parser.parse_args()

noise = random.Random(7)
for step in range(60):
    time.sleep(args.step_ms / 1000)
    print(f"Step {step}: Loss {5 - step / 20 + noise.gauss(0, 0.05):.4f}", flush=True)
