"""What groups are ranked by.

In: the groups and the plan's `rank_by`. Out: a `Metric`. `throughput` is samples/s where most groups of the main lane have it, else
tokens/s, else steps/s, else the length of the run: one figure for all groups, since unlike ones cannot be put in one order. A group
that lacks it cannot win, so that one poor run does not change what all the others are ranked by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.errors import UsageError, did_you_mean
from seatrial.records.caution import Caution
from seatrial.records.measure import Estimate, GroupSummary


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure to order by."""

    name: str
    unit: str
    higher_is_better: bool
    seed_column: str | None = None
    """Set where the figure is one of the seeds' columns, which carry no interval."""

    def of(self, group: GroupSummary) -> Estimate | None:
        """The group's figure, None where it has none."""
        if self.seed_column is None:
            return group.figures.get(self.name)
        cell = group.seed.get(self.seed_column)
        if isinstance(cell, bool) or not isinstance(cell, (int, float)) or cell <= 0:
            return None
        return Estimate(mean=float(cell), n=1)


ANY_THROUGHPUT = "throughput"
"""The first of THROUGHPUT that is told."""
THROUGHPUT = ("samples_per_s", "tokens_per_s", "steps_per_s", "duration_s")
METRICS = {
    metric.name: metric
    for metric in (
        Metric(name="samples_per_s", unit="samples/s", higher_is_better=True),
        Metric(name="tokens_per_s", unit="tokens/s", higher_is_better=True),
        Metric(name="steps_per_s", unit="steps/s", higher_is_better=True),
        Metric(name="wall_p50_ms", unit="ms a step", higher_is_better=False),
        Metric(name="wall_p90_over_p50", unit="p90/p50", higher_is_better=False),
        Metric(name="startup_s", unit="s to the first step", higher_is_better=False),
        Metric(name="duration_s", unit="s a run", higher_is_better=False),
        Metric(name="iter_p50", unit="ms iter p50", higher_is_better=False, seed_column="tail_mean_iter_p50_ms_mean"),
        Metric(name="stability", unit="stability score", higher_is_better=False, seed_column="stability_score"),
        Metric(name="balanced", unit="balanced place", higher_is_better=False, seed_column="rank_balanced"),
    )
}


def choose_metric(groups: Sequence[GroupSummary], rank_by: str) -> tuple[Metric, list[Caution]]:
    """The metric, and a caution where some groups lack it, or tell a better one that most lack."""
    if rank_by != ANY_THROUGHPUT:
        if rank_by not in METRICS:
            raise UsageError(f"rank_by: '{rank_by}' is not a figure to rank by; {did_you_mean(rank_by, [ANY_THROUGHPUT, *METRICS])}")
        return METRICS[rank_by], []
    running = [group for group in groups if group.runs]
    deciding = [group for group in running if group.lane] or running
    name = next((name for name in THROUGHPUT if 2 * sum(name in group.figures for group in deciding) > len(deciding)), THROUGHPUT[-1])
    better = [other for other in THROUGHPUT[: THROUGHPUT.index(name)] if any(other in group.figures for group in running)]
    told = [*better[:1], *([name] if any(name not in group.figures for group in running) else [])]
    return METRICS[name], [_mixed(which, name, running) for which in told[-1:]]


def _mixed(lacked: str, used: str, running: Sequence[GroupSummary]) -> Caution:
    lacking = [group.group for group in running if lacked not in group.figures]
    effect = "they cannot win" if lacked == used else f"so {used} is what all are ranked by"
    return Caution(
        kind="mixed_figures",
        numbers={"groups": len(running), "lacking": len(lacking)},
        text=f"{lacked} is not known of every run of {', '.join(lacking[:5])}: {effect}. Run them again with more steps, make every script "
        "tell it, or give samples_per_step or tokens_per_step in the plan.",
    )
