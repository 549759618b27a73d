"""Every metric a plan's `criteria` may name: where it may be looked at, whether it needs a bound, and which record field it reads.

Plain data, read by plan/ to check a plan and by judge/ to judge one. A dotted field reads into a mapping: `figures.samples_per_s`
is `GroupSummary.figures["samples_per_s"]`, `seed.unstable_run_ratio` is `GroupSummary.seed["unstable_run_ratio"]`.
"""

from __future__ import annotations

from dataclasses import dataclass

CAMPAIGN, EVERY_RUN, EVERY_GROUP, WINNER = "campaign", "every_run", "every_group", "winner"
SCOPES = (CAMPAIGN, EVERY_RUN, EVERY_GROUP, WINNER)
_MEASURED = (EVERY_RUN, EVERY_GROUP, WINNER)


@dataclass(frozen=True, kw_only=True)
class MetricEntry:
    """One metric a criterion may name."""

    meaning: str
    """One line for people."""
    scopes: tuple[str, ...]
    """Where it may be looked at."""
    default_scope: str
    needs_bound: bool = True
    """False for a metric that is true or false by itself; such a one takes no bound."""
    run_field: str | None = None
    """Field of RunMeasure it reads with scope `every_run`."""
    group_field: str | None = None
    """Field of GroupSummary it reads with the other scopes."""


METRICS: dict[str, MetricEntry] = {
    "failed_runs": MetricEntry(
        meaning="runs that did not end ok, interrupted ones not counted",
        scopes=(CAMPAIGN, EVERY_GROUP, WINNER),
        default_scope=CAMPAIGN,
        group_field="failed_runs",
    ),
    "loss_falls": MetricEntry(
        meaning="the loss of a run falls beyond its noise, and no loss is nan; one that neither falls nor rises is inconclusive",
        scopes=(EVERY_RUN,),
        default_scope=EVERY_RUN,
        needs_bound=False,
        run_field="loss_falls",
    ),
    "unstable_run_ratio": MetricEntry(
        meaning="share of a group's runs whose last timing window is unstable (iter p90/p50 above 2 or step p90/p50 above 3)",
        scopes=(EVERY_GROUP, WINNER),
        default_scope=EVERY_GROUP,
        group_field="seed.unstable_run_ratio",
    ),
    "wall_p90_over_p50": MetricEntry(
        meaning="p90 over p50 of the wall time of a step",
        scopes=_MEASURED,
        default_scope=EVERY_RUN,
        run_field="wall_p90_over_p50",
        group_field="figures.wall_p90_over_p50",
    ),
    "iter_p90_over_p50": MetricEntry(
        meaning="p90 over p50 of the sum of phases in the last timing window",
        scopes=_MEASURED,
        default_scope=EVERY_RUN,
        run_field="seed.iter_p90_over_p50",
        group_field="seed.iter_p90_over_p50_mean",
    ),
    "samples_per_s": MetricEntry(
        meaning="samples a second, all ranks together, by wall clock over the window",
        scopes=_MEASURED,
        default_scope=WINNER,
        run_field="samples_per_s",
        group_field="figures.samples_per_s",
    ),
    "tokens_per_s": MetricEntry(
        meaning="tokens a second, all ranks together, by wall clock over the window",
        scopes=_MEASURED,
        default_scope=WINNER,
        run_field="tokens_per_s",
        group_field="figures.tokens_per_s",
    ),
    "steps_per_s": MetricEntry(
        meaning="steps a second, by wall clock over the window",
        scopes=_MEASURED,
        default_scope=WINNER,
        run_field="steps_per_s",
        group_field="figures.steps_per_s",
    ),
    "startup_s": MetricEntry(
        meaning="seconds from launch to the end of the first step",
        scopes=_MEASURED,
        default_scope=EVERY_RUN,
        run_field="startup_s",
        group_field="figures.startup_s",
    ),
    "duration_s": MetricEntry(
        meaning="seconds a run took from launch to the last process gone",
        scopes=_MEASURED,
        default_scope=EVERY_RUN,
        run_field="duration_s",
        group_field="figures.duration_s",
    ),
}
