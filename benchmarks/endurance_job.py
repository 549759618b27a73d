"""One run of the endurance benchmark: the dummy workload, healthy or broken as its number says.

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
class Order:
    """Settings of the dummy beyond the healthy ones, and the outcome that is right for them."""

    outcome: str
    settings: dict[str, Any] = field(default_factory=dict)


HEALTHY = Order("ok")
FAULTS = (
    Order("failed", {"crash_at_step": 5, "crash_with": "exception"}),
    Order("failed", {"crash_at_step": 5, "crash_with": "exit", "crash_rank": 1}),
    Order("failed", {"crash_at_step": 5, "crash_with": "sigkill"}),
    Order("failed", {"crash_at_step": 5, "crash_with": "segfault"}),
    Order("failed", {"crash_at_step": 5, "crash_with": "cuda_oom"}),
    Order("failed", {"crash_at_step": 5, "crash_with": "port_in_use"}),
    Order("stalled", {"hang_at_step": 30, "hang_rank": 1}),
    Order("stalled", {"hang_at_step": 30, "hang_in": "c"}),
    Order("failed", {"skip_all_steps": True}),
    Order("ok", {"orphan": True}),
    Order("ok", {"shared_memory": True}),
    Order("ok", {"output": "rubbish"}),
    Order("ok", {"output": "none"}),
    Order("ok", {"lies": "steps_back"}),
    Order("ok", {"lies": "other_run"}),
    Order("ok", {"loss": "nan"}),
)


def ordered(number: int) -> Order:
    """What run `number` is to be, the same each time."""
    chance = random.Random(f"endurance {number}")
    return chance.choice(FAULTS) if chance.random() < FAULTY_RATIO else HEALTHY


def main() -> None:
    from seatrial_workloads.dummy.train import main as train

    settings = {"steps": STEPS, "step_ms": 10, **ordered(int(sys.argv[1])).settings}
    train([word for name, value in settings.items() for word in (f"--{name}", str(value).lower() if value is True else str(value))])


if __name__ == "__main__":
    main()
