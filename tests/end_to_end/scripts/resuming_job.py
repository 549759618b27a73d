"""A user's own training, with checkpoints of its own format that it resumes from: crashes at step 7 of its first attempt."""

import json
import os
from pathlib import Path

from seatrial.probe import Probe

STEPS, CRASH_AT, EVERY = 12, 7, 3

checkpoints, earlier = Path(os.environ["SEATRIAL_RUN_DIR"]) / "checkpoints", os.environ.get("SEATRIAL_RESUME_FROM")
start, weight = 0, 10.0
if earlier:
    saved = json.loads((Path(earlier) / "checkpoints" / "state.json").read_text())
    start, weight = saved["step"] + 1, saved["weight"]
with Probe() as probe:
    probe.resume_at(start)
    for step in range(start, STEPS):
        with probe.step(samples=4):
            weight *= 0.9
        probe.loss(weight)
        if step % EVERY == 0:
            checkpoints.mkdir(exist_ok=True)
            (checkpoints / "state.json").write_text(json.dumps({"step": step, "weight": weight}))
        if step == CRASH_AT and not earlier:
            raise RuntimeError("requested crash")
