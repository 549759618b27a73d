"""Every metric a plan's `criteria` may name: where it may be looked at, its unit, whether it needs a bound, and where its value comes from.

Plain data, read by plan/ to check a plan, by judge/ to judge one and by the pages that list them. A dotted field reads into a mapping or
a record: `figures.samples_per_s` is `GroupSummary.figures["samples_per_s"]`, `stability.cv_pct` is `GroupSummary.stability.cv_pct`.
"""

from __future__ import annotations

from dataclasses import dataclass

CAMPAIGN, EVERY_RUN, EVERY_GROUP, WINNER = "campaign", "every_run", "every_group", "winner"
SCOPES = (CAMPAIGN, EVERY_RUN, EVERY_GROUP, WINNER)
REPORTED = "reported."
"""A metric that begins so is a figure which the workload reported itself: `reported.rouge1` is what `probe.figure("rouge1", …)` told."""
_MEASURED = (EVERY_RUN, EVERY_GROUP, WINNER)
_COUNTED = (CAMPAIGN, EVERY_GROUP, WINNER)
_OF_GROUPS = (EVERY_GROUP, WINNER)


@dataclass(frozen=True, kw_only=True)
class MetricEntry:
    """One metric a criterion may name."""

    meaning: str
    """One line for people."""
    scopes: tuple[str, ...]
    """Where it may be looked at."""
    default_scope: str
    unit: str = ""
    """Of its value and of a bound without a unit of its own: `ms`, `%`, `runs`; `ratio` is a plain number, empty is true or false."""
    needs_bound: bool = True
    """False for a metric that is true or false by itself; such a one takes no bound."""
    compares: bool = False
    """True where it holds a group against a baseline, which the criterion or the plan's `baseline` names."""
    run_field: str | None = None
    """Field of RunMeasure it reads with scope `every_run`."""
    group_field: str | None = None
    """Field of GroupSummary it reads with the other scopes; None for what is compared, or counted over runs."""
    per_gpu: bool = False
    """The value of the field is divided by the number of GPUs (of ranks, where there are none)."""


def metric_entry(metric: str) -> MetricEntry | None:
    """The entry of a metric, one made for any `reported.NAME`; None for a name that nothing measures."""
    name = metric.removeprefix(REPORTED)
    if metric in METRICS or name == metric or not name:
        return METRICS.get(metric)
    return MetricEntry(
        meaning=f"the figure '{name}' that a run reported itself, the last one told",
        scopes=(EVERY_RUN,),
        default_scope=EVERY_RUN,
        run_field=metric,
    )


def _of_run(meaning: str, unit: str, run_field: str) -> MetricEntry:
    """A number that single runs have."""
    return MetricEntry(meaning=meaning, scopes=(EVERY_RUN,), default_scope=EVERY_RUN, unit=unit, run_field=run_field)


def _of_group(meaning: str, unit: str, group_field: str) -> MetricEntry:
    """A number that only repeats together have."""
    return MetricEntry(meaning=meaning, scopes=_OF_GROUPS, default_scope=EVERY_GROUP, unit=unit, group_field=group_field)


def _measured(meaning: str, unit: str, default_scope: str, run_field: str, group_field: str, per_gpu: bool = False) -> MetricEntry:
    """A figure of single runs whose mean a group has."""
    return MetricEntry(
        meaning=meaning,
        scopes=_MEASURED,
        default_scope=default_scope,
        unit=unit,
        run_field=run_field,
        group_field=group_field,
        per_gpu=per_gpu,
    )


def _count(meaning: str) -> MetricEntry:
    """A number of runs, counted by what is found in each."""
    return MetricEntry(meaning=meaning, scopes=_COUNTED, default_scope=CAMPAIGN, unit="runs")


def _true_of_run(meaning: str, run_field: str) -> MetricEntry:
    return MetricEntry(meaning=meaning, scopes=(EVERY_RUN,), default_scope=EVERY_RUN, needs_bound=False, run_field=run_field)


def _true_of_group(meaning: str, group_field: str) -> MetricEntry:
    return MetricEntry(meaning=meaning, scopes=_OF_GROUPS, default_scope=EVERY_GROUP, needs_bound=False, group_field=group_field)


def _compared(meaning: str, default_scope: str, unit: str = "%", needs_bound: bool = True) -> MetricEntry:
    return MetricEntry(
        meaning=meaning,
        scopes=_OF_GROUPS,
        default_scope=default_scope,
        unit=unit,
        needs_bound=needs_bound,
        compares=True,
    )


def _over_campaign(meaning: str, unit: str) -> MetricEntry:
    return MetricEntry(meaning=meaning, scopes=(CAMPAIGN,), default_scope=CAMPAIGN, unit=unit)


METRICS: dict[str, MetricEntry] = {
    # How runs ended.
    "failed_runs": _count("runs that did not end ok, interrupted ones not counted"),
    "halted_runs": _count("runs whose ranks ended because a halt file asked for it"),
    "counted_runs": _of_group("runs of a group that its figures are made of: they ended ok, under the same conditions", "runs", "runs"),
    "steps_done": _of_run("steps that rank 0 of a run did", "steps", "steps_done"),
    # The loss.
    "loss_falls": _true_of_run(
        "the loss of rank 0 falls beyond its noise, and no loss is nan of the ranks that tell theirs; one that neither falls nor rises is "
        "inconclusive",
        "loss_falls",
    ),
    "loss_fall_pct": _of_run(
        "by how many per cent the mean loss of the last quarter of a run is below that of the first", "%", "loss_fall_pct"
    ),
    "loss_finite": _true_of_run(
        "no loss of a run is nan or infinite: rank 0's, or those of all ranks where several tell one", "loss_finite"
    ),
    "loss_comparable": _compared("the loss goes the way of the baseline's, or below it", WINNER, unit="", needs_bound=False),
    # Speed.
    "samples_per_s": _measured(
        "samples a second, all ranks together, by wall clock over the window", "samples/s", WINNER, "samples_per_s", "figures.samples_per_s"
    ),
    "tokens_per_s": _measured(
        "tokens a second, all ranks together, by wall clock over the window", "tokens/s", WINNER, "tokens_per_s", "figures.tokens_per_s"
    ),
    "steps_per_s": _measured("steps a second, by wall clock over the window", "steps/s", WINNER, "steps_per_s", "figures.steps_per_s"),
    "samples_per_s_per_gpu": _measured(
        "samples_per_s over the number of GPUs, of ranks where there are none",
        "samples/s",
        WINNER,
        "samples_per_s",
        "figures.samples_per_s",
        per_gpu=True,
    ),
    "tokens_per_s_per_gpu": _measured(
        "tokens_per_s over the number of GPUs, of ranks where there are none",
        "tokens/s",
        WINNER,
        "tokens_per_s",
        "figures.tokens_per_s",
        per_gpu=True,
    ),
    "wall_p50_ms": _measured("median wall time of a step", "ms", WINNER, "wall_p50_ms", "figures.wall_p50_ms"),
    "startup_s": _measured("seconds from launch to the end of the first step", "s", EVERY_RUN, "startup_s", "figures.startup_s"),
    "duration_s": _measured("seconds a run took from launch to the last process gone", "s", EVERY_RUN, "duration_s", "figures.duration_s"),
    "speedup_pct": _compared("by how many per cent a group's throughput is above the baseline's", WINNER),
    "regression_pct": _compared("by how many per cent a group's throughput is below the baseline's", EVERY_GROUP),
    "scaling_efficiency": _over_campaign(
        "throughput of one GPU at the largest number of GPUs, over that at the smallest; 1 is linear", "ratio"
    ),
    # Steadiness.
    "stable": _true_of_group("a group is stable by its p90/p50, by its repeats and by the share of unstable runs", "stability.verdict"),
    "unstable_run_ratio": _of_group(
        "share of a group's runs whose last timing window is unstable (iter p90/p50 above 2 or step p90/p50 above 3)",
        "ratio",
        "seed.unstable_run_ratio",
    ),
    "wall_p90_over_p50": _measured(
        "p90 over p50 of the wall time of a step", "ratio", EVERY_RUN, "wall_p90_over_p50", "figures.wall_p90_over_p50"
    ),
    "iter_p90_over_p50": _measured(
        "p90 over p50 of the sum of phases in the last timing window",
        "ratio",
        EVERY_RUN,
        "seed.iter_p90_over_p50",
        "seed.iter_p90_over_p50_mean",
    ),
    "step_p90_over_p50": _of_run("p90 over p50 of the phase `step` in the last timing window", "ratio", "seed.step_p90_over_p50"),
    "iter_ratio_median": _of_group(
        "median over a group's runs of iter p90/p50 in the last timing window", "ratio", "stability.ratio_median"
    ),
    "iter_ratio_max": _of_group("the highest iter p90/p50 of a group's runs, in the last timing window", "ratio", "stability.ratio_max"),
    "throughput_cv_pct": _of_group(
        "standard deviation of the throughput over a group's repeats, in per cent of its mean", "%", "stability.cv_pct"
    ),
    "sentinel_drift_pct": _over_campaign(
        "by how many per cent the platform drifted from the first sentinel run to the last, or changed its level in between, whichever is "
        "more, up or down; needs the plan's `sentinel`",
        "%",
    ),
    # What is found in a run.
    "leaking_runs": _count("runs whose memory leaks, of a GPU or of the process tree"),
    "leak_mib_per_min": _of_run("growth of the memory that leaks fastest in a run, 0 where all of it stays level", "MiB/min", "memory"),
    "straggling_runs": _count("runs in which one rank holds the others up"),
    "straggler_score": _of_run(
        "by how much the work of the slowest rank is longer than that of the others: 0.25 is a quarter; 0 where none is, or one rank only",
        "ratio",
        "straggler.score",
    ),
    # The machine.
    "gpu_mem_peak_mib": _of_run("most memory in use on one GPU of a run", "MiB", "telemetry.gpu_mem_peak_mib"),
    "host_rss_peak_mib": _of_run("most resident memory of a run's process tree", "MiB", "telemetry.host_rss_peak_mib"),
    "gpu_throttled_pct": _of_run("share of the samples of its GPUs in which one was throttled", "%", "telemetry.gpu_throttled_pct"),
    "gpu_telemetry_empty_ratio": _of_group(
        "share of a group's runs without samples of the GPUs", "ratio", "seed.gpu_telemetry_empty_ratio"
    ),
    # What the workload reports itself.
    "ttft_p99_ms": _of_run("p99 of the time to the first token, reported by the workload", "ms", "reported.ttft_p99_ms"),
    "tpot_p99_ms": _of_run("p99 of the time of each further token, reported by the workload", "ms", "reported.tpot_p99_ms"),
    "valid_queries_pct": _of_run(
        "share of the queries that were answered within all limits, reported by the workload", "%", "reported.valid_queries_pct"
    ),
}
