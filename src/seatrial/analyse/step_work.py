"""Whether a step of one side does what a step of another does.

In: two sides. Out: why it does not, in words; empty where it does, as far as is known. Figures of steps, lengths of runs and losses at one
step can be compared only where it does.
"""

from __future__ import annotations

import math

from seatrial.analyse.rank_cautions import BATCH_NAME
from seatrial.records.comparison import Side

# A last batch that is not full moves the mean work of a step by less than this, on logs.
SAME_WORK = 0.005
WORK = ("samples_per_s", "tokens_per_s")


def unlike_work(a: Side, b: Side) -> str:
    """By what the steps tell of their work where both do, else by the settings that say how much a step does."""
    for name in WORK:
        work_a, work_b = work_of_step(a, name), work_of_step(b, name)
        if work_a is not None and work_b is not None:
            unit = name.removesuffix("_per_s")
            unlike = abs(math.log(work_b / work_a)) > SAME_WORK
            return f"a step takes {work_a:.4g} {unit} in {a.name} and {work_b:.4g} in {b.name}" if unlike else ""
    differing = differing_batch(a, b)
    return f"{differing} differs" if differing else ""


def work_of_step(side: Side, name: str) -> float | None:
    """Samples or tokens that all ranks together take in one step; None where some run does not tell."""
    logs = []
    for run in side.runs:
        work, steps = run.figures.get(name), run.figures.get("steps_per_s")
        if not work or not steps or work < 0 or steps < 0:
            return None
        logs.append(math.log(work / steps))
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def differing_batch(a: Side, b: Side) -> str:
    """The first setting that says how much a step does and that differs, with its values; empty where none does."""
    for name in sorted({*a.settings, *b.settings}):
        before, after = a.settings.get(name, "none"), b.settings.get(name, "none")
        # Of `env.BATCH_SIZE` and `train.batch_size` the last word says it.
        if before != after and BATCH_NAME.search(name.rpartition(".")[2]):
            return f"{name} ({before} → {after})"
    return f"the number of ranks ({a.world_size} → {b.world_size})" if a.world_size != b.world_size else ""
