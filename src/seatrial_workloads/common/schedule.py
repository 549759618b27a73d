"""The learning rate of a step. In: the step and the lengths of the schedule. Out: a factor on the learning rate. A pure function.

As DeepSpeed's WarmupCosineLR has it: the factor rises with the logarithm of the step, is 1 at the end of the warm-up, then comes down along
half a cosine to its least at the end of the schedule, and stays there. Both engines set it themselves before each update, so that no
scheduler is asked before it has begun.

step       0      warmup_steps - 1             schedule_steps - 1
factor     0  ↗   1                     ↘      min_ratio           → min_ratio
"""

from __future__ import annotations

import math


def lr_factor(step: int, *, warmup_steps: int, schedule_steps: int, min_ratio: float) -> float:
    """Factor for the update after step `step`, counted from 0. Without warm-up steps it begins at 1 and comes down."""
    # One step has no logarithm to rise by: as DeepSpeed does, the shortest warm-up is two.
    warmup_steps = max(2, warmup_steps) if warmup_steps else 0
    if step < warmup_steps:
        return math.log(step + 1) / math.log(warmup_steps)
    decay_steps = max(1, schedule_steps - warmup_steps)
    progress = min(1.0, (step - warmup_steps + 1) / decay_steps)
    return min_ratio + (1 - min_ratio) * (1 + math.cos(math.pi * progress)) / 2
