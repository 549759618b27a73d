"""A training that saves its step after each, halts when it is told to, and goes on from where an earlier attempt was."""

import os
import time
from pathlib import Path

from seatrial.probe import Probe

STEPS = 300

checkpoints, earlier = Path(os.environ["SEATRIAL_RUN_DIR"]) / "checkpoints", os.environ.get("SEATRIAL_RESUME_FROM")
checkpoints.mkdir(exist_ok=True)
start = int((Path(earlier) / "checkpoints" / "step").read_text()) + 1 if earlier else 0
with Probe() as probe:
    probe.resume_at(start)
    for step in range(start, STEPS):
        with probe.step(samples=1):
            time.sleep(0.05)
        (checkpoints / "step").write_text(str(step))
        if probe.halted:
            break
