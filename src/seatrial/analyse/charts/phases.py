"""charts/phases.csv: what a step's time goes into.

In: the work of all ranks in the window. Out: mean time and share of each phase over the ranks and the steps whose phases were told, and
`other`: what no phase explains. Of launches that run ahead of a GPU the phases may take longer than the step by wall clock; shares are
then of their sum.
"""

from __future__ import annotations

from seatrial.analyse.straggler_work import RankWork
from seatrial.records.charts import Columns
from seatrial.records.measure import Cell, Window

OTHER = "other"


def phase_table(work: RankWork, window: Window) -> Columns:
    """One row a phase, in the order of a step; {} where none was told."""
    if len(work.steps) == 0 or not work.phases:
        return {}
    mean_ms = {name: float(values.mean()) for name, values in work.phases.items()}
    named_ms = sum(mean_ms.values())
    total_ms = max(float(work.total_ms.mean()), named_ms)
    if total_ms <= 0:
        return {}
    mean_ms[OTHER] = total_ms - named_ms
    names: list[Cell] = list(mean_ms)
    return {
        "phase": names,
        "mean_ms": list(mean_ms.values()),
        "share_pct": [100 * each_ms / total_ms for each_ms in mean_ms.values()],
        "first_step": [window.first_step] * len(names),
        "last_step": [window.last_step] * len(names),
        "n": [len(work.steps)] * len(names),
    }
