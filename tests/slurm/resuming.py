"""A training that saves its step after each, halts when it is told to, and goes on from where an earlier attempt was.

With NEVER_HALTS its first attempt runs until it is killed, whatever it is told.
"""

import os
import time
from pathlib import Path

from seatrial.probe import Probe

checkpoints, earlier = Path(os.environ["SEATRIAL_RUN_DIR"]) / "checkpoints", os.environ.get("SEATRIAL_RESUME_FROM")
checkpoints.mkdir(exist_ok=True)
start = int((Path(earlier) / "checkpoints" / "step").read_text()) + 1 if earlier else 0
never_halts = "NEVER_HALTS" in os.environ
end = 300 if not never_halts else start + 20 if earlier else 1_000_000
with Probe() as probe:
    probe.resume_at(start)
    for step in range(start, end):
        with probe.step(samples=1):
            time.sleep(0.05)
        # Written aside: whoever kills it leaves the last whole one.
        (checkpoints / ".step").write_text(str(step))
        (checkpoints / ".step").rename(checkpoints / "step")
        if probe.halted and not never_halts:
            break
