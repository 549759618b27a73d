"""What is judged: the metrics a plan's criteria may name, criteria, findings with their evidence, and the verdict.

METRICS records for each metric where it may be evaluated, its unit, whether it needs a bound, and where its value comes from. A dotted
field reads into a mapping or a record: `figures.samples_per_s` is `GroupSummary.figures["samples_per_s"]`, `stability.cv_pct` is
`GroupSummary.stability.cv_pct`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import partial

from seatrial.core import errors
from seatrial.records.caution import Scalar

CAMPAIGN, EVERY_RUN, EVERY_GROUP, WINNER = "campaign", "every_run", "every_group", "winner"
SCOPES = (CAMPAIGN, EVERY_RUN, EVERY_GROUP, WINNER)
REPORTED = "reported."
"""Prefix of figures that the workload reported itself: `reported.rouge1` is `probe.figure("rouge1", …)`."""


@dataclass(frozen=True)
class MetricEntry:
    """One metric that a criterion may name."""

    meaning: str
    """One line for people."""
    unit: str = ""
    """Unit of its value, and of a bound that names none: `ms`, `%`, `runs`; `ratio` is a plain number, empty is true or false."""
    run_field: str | None = None
    """Field of RunMeasure that is read with scope `every_run`."""
    group_field: str | None = None
    """Field of GroupSummary that is read with the other scopes; None for what is compared, or counted over runs."""
    scopes: tuple[str, ...] = field(kw_only=True)
    """The scopes in which it may be evaluated."""
    default_scope: str = field(kw_only=True)
    needs_bound: bool = field(default=True, kw_only=True)
    """False for a metric that is true or false and takes no bound."""
    compares: bool = field(default=False, kw_only=True)
    """True where it compares a group with a baseline, which the criterion or the plan's `baseline` names."""
    per_gpu: bool = field(default=False, kw_only=True)
    """Whether it is divided by the number of GPUs (of ranks, where there are none)."""


def metric_entry(metric: str) -> MetricEntry | None:
    """The entry of a metric, created for any `reported.NAME`; None for an unknown name."""
    name = metric.removeprefix(REPORTED)
    if metric in METRICS or name == metric or not name:
        return METRICS.get(metric)
    return _of_run(f"the figure '{name}' that a run reported itself, the last one", run_field=metric)


# In turn: a figure of a run, of a group, of a run with the mean for groups; a count of runs; a figure of the campaign; a comparison.
_of_run = partial(MetricEntry, scopes=(EVERY_RUN,), default_scope=EVERY_RUN)
_of_group = partial(MetricEntry, scopes=(EVERY_GROUP, WINNER), default_scope=EVERY_GROUP)
_measured = partial(MetricEntry, scopes=(EVERY_RUN, EVERY_GROUP, WINNER), default_scope=WINNER)
_counted = partial(MetricEntry, unit="runs", scopes=(CAMPAIGN, EVERY_GROUP, WINNER), default_scope=CAMPAIGN)
_over_campaign = partial(MetricEntry, scopes=(CAMPAIGN,), default_scope=CAMPAIGN)
_compared = partial(_of_group, compares=True)


METRICS: dict[str, MetricEntry] = {
    # How runs ended.
    "failed_runs": _counted("runs that did not end ok, interrupted ones not counted"),
    "halted_runs": _counted("runs whose ranks stopped at a halt file"),
    "counted_runs": _of_group(
        "runs of a group that its figures are computed from: they ended ok, under the same conditions", "runs", group_field="runs"
    ),
    "steps_done": _of_run("steps that rank 0 of a run did", "steps", "steps_done"),
    # The loss.
    "loss_falls": _of_run(
        "the loss of rank 0 falls beyond its noise, and no loss is nan on the ranks that report theirs; one that neither falls nor rises "
        "is inconclusive",
        run_field="loss_falls",
        needs_bound=False,
    ),
    "loss_fall_pct": _of_run(
        "by how many per cent the mean loss of the last quarter of a run is below that of the first", "%", "loss_fall_pct"
    ),
    "loss_finite": _of_run(
        "no loss of a run is nan or infinite: rank 0's, or those of all ranks where several report one",
        run_field="loss_finite",
        needs_bound=False,
    ),
    "loss_comparable": _compared("the loss follows the baseline's, or is below it", default_scope=WINNER, needs_bound=False),
    # Speed.
    "samples_per_s": _measured(
        "samples a second, all ranks together, by wall clock over the window", "samples/s", "samples_per_s", "figures.samples_per_s"
    ),
    "tokens_per_s": _measured(
        "tokens a second, all ranks together, by wall clock over the window", "tokens/s", "tokens_per_s", "figures.tokens_per_s"
    ),
    "steps_per_s": _measured("steps a second, by wall clock over the window", "steps/s", "steps_per_s", "figures.steps_per_s"),
    "samples_per_s_per_gpu": _measured(
        "samples_per_s over the number of GPUs, of ranks where there are none",
        "samples/s",
        "samples_per_s",
        "figures.samples_per_s",
        per_gpu=True,
    ),
    "tokens_per_s_per_gpu": _measured(
        "tokens_per_s over the number of GPUs, of ranks where there are none",
        "tokens/s",
        "tokens_per_s",
        "figures.tokens_per_s",
        per_gpu=True,
    ),
    "wall_p50_ms": _measured("median wall time of a step", "ms", "wall_p50_ms", "figures.wall_p50_ms"),
    "startup_s": _measured(
        "seconds from launch to the end of the first step", "s", "startup_s", "figures.startup_s", default_scope=EVERY_RUN
    ),
    "duration_s": _measured(
        "seconds a run took from launch to the last process gone", "s", "duration_s", "figures.duration_s", default_scope=EVERY_RUN
    ),
    "speedup_pct": _compared("by how many per cent a group's throughput is above the baseline's", "%", default_scope=WINNER),
    "regression_pct": _compared("by how many per cent a group's throughput is below the baseline's", "%"),
    "scaling_efficiency": _over_campaign(
        "throughput of one GPU at the largest number of GPUs, over that at the smallest; 1 is linear", "ratio"
    ),
    # Steadiness.
    "stable": _of_group(
        "a group is stable by its p90/p50, by its repeats and by the share of unstable runs",
        group_field="stability.verdict",
        needs_bound=False,
    ),
    "unstable_run_ratio": _of_group(
        "share of a group's runs whose last timing window is unstable (iter p90/p50 above 2 or step p90/p50 above 3)",
        "ratio",
        group_field="stage1.unstable_run_ratio",
    ),
    "wall_p90_over_p50": _measured(
        "p90 over p50 of the wall time of a step", "ratio", "wall_p90_over_p50", "figures.wall_p90_over_p50", default_scope=EVERY_RUN
    ),
    "iter_p90_over_p50": _measured(
        "p90 over p50 of the sum of phases in the last timing window",
        "ratio",
        "stage1.iter_p90_over_p50",
        "stage1.iter_p90_over_p50_mean",
        default_scope=EVERY_RUN,
    ),
    "step_p90_over_p50": _of_run("p90 over p50 of the phase `step` in the last timing window", "ratio", "stage1.step_p90_over_p50"),
    "iter_ratio_median": _of_group(
        "median over a group's runs of iter p90/p50 in the last timing window", "ratio", group_field="stability.ratio_median"
    ),
    "iter_ratio_max": _of_group(
        "the highest iter p90/p50 of a group's runs, in the last timing window", "ratio", group_field="stability.ratio_max"
    ),
    "throughput_cv_pct": _of_group(
        "standard deviation of the throughput over a group's repeats, in per cent of its mean", "%", group_field="stability.cv_pct"
    ),
    "turn_taking_runs": _counted("runs in which the utilisation of two GPUs is anti-correlated"),
    "jittering_runs": _counted("runs whose iter p90/p50 is persistently above 2: in half or more of their timing windows"),
    "sentinel_drift_pct": _over_campaign(
        "by how many per cent the platform drifted from the first sentinel run to the last, or changed its level in between, whichever is "
        "more, up or down; needs the plan's `sentinel`",
        "%",
    ),
    # Findings of a run.
    "leaking_runs": _counted("runs whose memory leaks, of a GPU or of the process tree"),
    "leak_mib_per_min": _of_run("growth of the memory that leaks fastest in a run, 0 where all of it stays level", "MiB/min", "memory"),
    "straggling_runs": _counted("runs in which one rank holds the others up"),
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
        "share of a group's runs without samples of the GPUs", "ratio", group_field="stage1.gpu_telemetry_empty_ratio"
    ),
    # Reported by the workload itself.
    "ttft_p99_ms": _of_run("p99 of the time to the first token, reported by the workload", "ms", "reported.ttft_p99_ms"),
    "tpot_p99_ms": _of_run("p99 of the time of each further token, reported by the workload", "ms", "reported.tpot_p99_ms"),
    "valid_queries_pct": _of_run(
        "share of the queries that were answered within all limits, reported by the workload", "%", "reported.valid_queries_pct"
    ),
}


HOW_TO_NAME_A_BASELINE = (
    "give the criterion one of `baseline: {group: NAME}` (a group of this campaign), "
    "`baseline: {campaign: OUT, group: NAME}` (a group of another one, the recommended one without `group`), "
    "`baseline: {history: NAME}` (a row that `seatrial history pin` named)"
)


class Verdict(str, enum.Enum):
    """The result of judging; exit codes 0, 2 and 3."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        return {"PASS": errors.DONE, "FAIL": errors.FAILED, "INCONCLUSIVE": errors.INCONCLUSIVE}[self.value]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a criterion compares with: a group of this campaign, a group of another one, or a pinned row of history."""

    group: str = ""
    """A group of this campaign, or of `campaign`, where empty means the recommended one."""
    campaign: str = ""
    history: str = ""

    @property
    def shown(self) -> str:
        """The name in reports."""
        return f"the recommended group of {self.campaign}" if self.campaign and not self.group and not self.history else self.text

    @property
    def text(self) -> str:
        """The key of its comparison."""
        if self.history:
            return f"history:{self.history}"
        return f"{self.campaign}:{self.group}" if self.campaign else self.group


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One criterion of a plan: a metric, its scope, and a bound."""

    metric: str
    scope: str
    """`campaign`, `every_run`, `every_group` or `winner` (the recommended group where no winner is proven)."""
    group: str = ""
    """The group judged with scope `winner` instead of the recommended one; empty for that one."""
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""
    """Unit of the bounds: the metric's own."""
    baseline: Baseline | None = None
    """The baseline of a metric that compares; None where the plan names none."""
    ready: str = ""
    """The criteria preset it belongs to: `stage1_stability`."""
    reason: str = ""


_FAILED_RUNS = METRICS["failed_runs"]
DEFAULT_CRITERIA = (Criterion(metric="failed_runs", scope=_FAILED_RUNS.default_scope, at_most=0, unit=_FAILED_RUNS.unit),)
"""The criteria of a plan that has none."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One number that a finding is based on, and the file it was read from."""

    subject: str
    """The run or group."""
    value: Scalar
    file: str
    unit: str = ""
    name: str = ""
    """What the value is, where it is not the criterion's metric: `slope`, `p90/p50`."""
    window: str = ""
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A possible reason for a finding, from the registry of signatures, and what to do."""

    id: str
    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One judged statement. Findings of a plan's criteria decide the verdict; the others are shown beside them."""

    id: str
    """Unique in the campaign, for `seatrial why OUT ID`: `1-failed_runs-campaign`, `leak:mb16_r1:host`."""
    kind: str = "criterion"
    """`criterion`; without a criterion `winner`, `stability`, `cause`, `drift`, `leak`, `straggler`, `steady_state`, `slow_steps`,
    `failure`, `debug`."""
    criterion: Criterion | None = None
    verdict: Verdict
    text: str
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CampaignVerdict:
    """verdict.json."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    statements: tuple[Finding, ...] = ()
    """Findings without a criterion; none of them changes the exit code."""
    partial: bool = False
    """Whether runs of the plan are still pending."""
    confounded: tuple[str, ...] = ()
    """What confounds groups that were compared nevertheless (`--allow-confounded`): no plan that `needs` this campaign accepts such a
    verdict."""
    notes: dict[str, str] = field(default_factory=dict)
