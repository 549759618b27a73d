"""One run of the endurance benchmark: the dummy workload, healthy or with the fault drawn for its number.

python benchmarks/endurance_job.py 17
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from typing import Any

STEPS = 60
FAULTY_RATIO = 1 / 3


@dataclass(frozen=True)
class Fault:
    """Settings of the dummy workload that cause it (none for a healthy run), and the expected outcome."""

    outcome: str
    settings: dict[str, Any] = field(default_factory=dict)


HEALTHY = Fault("ok")
FAULTS = (
    Fault("failed", {"crash_at_step": 5, "crash_with": "exception"}),
    Fault("failed", {"crash_at_step": 5, "crash_with": "exit", "crash_rank": 1}),
    Fault("failed", {"crash_at_step": 5, "crash_with": "sigkill"}),
    Fault("failed", {"crash_at_step": 5, "crash_with": "segfault"}),
    Fault("failed", {"crash_at_step": 5, "crash_with": "cuda_oom"}),
    Fault("failed", {"crash_at_step": 5, "crash_with": "port_in_use"}),
    Fault("stalled", {"hang_at_step": 30, "hang_rank": 1}),
    Fault("stalled", {"hang_at_step": 30, "hang_in": "c"}),
    Fault("failed", {"skip_all_steps": True}),
    Fault("ok", {"orphan": True}),
    Fault("ok", {"shared_memory": True}),
    Fault("ok", {"output": "rubbish"}),
    Fault("ok", {"output": "none"}),
    Fault("ok", {"lies": "steps_back"}),
    Fault("ok", {"lies": "other_run"}),
    Fault("ok", {"loss": "nan"}),
)


def fault_of(number: int) -> Fault:
    """The fault of run `number`, the same each time."""
    rng = random.Random(f"endurance {number}")
    return rng.choice(FAULTS) if rng.random() < FAULTY_RATIO else HEALTHY


def main() -> None:
    from seatrial_workloads.dummy.train import main as train

    settings = {"steps": STEPS, "step_ms": 10, **fault_of(int(sys.argv[1])).settings}
    train([argument for name, value in settings.items() for argument in (f"--{name}", str(value).lower() if value is True else str(value))])


if __name__ == "__main__":
    main()
