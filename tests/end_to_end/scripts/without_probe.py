"""Two ranks that print their steps and report nothing: in one gloo group, or with `alone` in none at all."""

import os
import sys
import time
from pathlib import Path

alone = "alone" in sys.argv
if not alone:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
seen = Path(os.environ["SEATRIAL_RUN_DIR"]) / "observed_ranks.json"
for step in range(1200):
    if not alone:
        dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
    print(f"step: {step} loss: {1 / (step + 1):.3f}", flush=True)
    # Long enough for the agent to have looked at both; all ranks leave at one step, as they wait for each other.
    looked = seen.exists() and (seen.read_text().count('"local"') > 1 or alone)
    if not alone:
        votes = torch.tensor([float(looked)])
        dist.all_reduce(votes)
        looked = votes.item() == 2
    if looked and step > 20:
        break
if not alone:
    dist.destroy_process_group()
