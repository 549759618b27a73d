"""How each number of a verdict is computed, in one sentence, and which raw files it was computed from.

In: a finding and one of its pieces of evidence. Out: the sentence, and the kinds of raw files behind the number, for `seatrial why`.
"""

from __future__ import annotations

import enum

from seatrial.judge.criteria import is_reported
from seatrial.judge.evidence import LOWER_END, UPPER_END
from seatrial.records.measure import PREFLIGHT
from seatrial.records.verdict import EVERY_GROUP, EVERY_RUN, METRICS, WINNER, Evidence, Finding, metric_entry


class RawKind(enum.Enum):
    """A kind of file that a run writes and that tables are computed from."""

    STEPS = "steps"
    """Event files, or the log where there are none."""
    TELEMETRY = "telemetry"
    OUTCOME = "outcome"
    LOG = "log"
    SETTINGS = "settings"


_GROUP_MEAN = "geometric mean over the counted runs, with Student's 95 % interval on logs{}, of: {}"
_DECIDED_BY = ", all of which must lie on one side of the bound"
_SLOPE = (
    "Theil-Sen slope of memory in use over time after warm-up: the median of the slopes "
    "between the levels of all pairs of blocks of samples"
)
_SCORE = "the rank's median own work in a step over that of the other ranks, minus 1"

_LOSS = "loss difference"

# By the beginning of an evidence's name.
_BY_NAME = {
    "cause": "how the run ended, by its exit code, its alarms and the first error lines of its log",
    "halted": "the ranks ended because of a halt file, or the run stalled until it was killed",
    "slope of": _SLOPE,
    "growth of": "that slope times the time of 1,000 steps after warm-up",
    "limit of": "the memory of the GPU or the host",
    "hours until": "free memory over that slope; at the steepest: over the upper end of its interval",
    "straggler score": _SCORE,
    _LOSS: "mean loss of the group minus that of the baseline, over the last quarter of the steps that both have",
    "total at": "work done by all ranks in the window over the time of the window, geometric mean over the counted runs",
    "median p90/p50": "median over the runs of p90 over p50 of a step's time in the last timing window",
    "highest p90/p50": "highest over the runs of p90 over p50 of a step's time in the last timing window",
    "spread over repeats": "standard deviation of the throughput over the repeats, as a share of its mean",
    "share of unstable runs": "runs whose last timing window has iter p90/p50 above 2 or step p90/p50 above 3, over all of the group",
    "drift": "a straight line through the logs of the sentinel runs' throughput over time: from the first to the last",
    "change of level": "mean of the logs of the sentinel runs' throughput after the change, minus that before it",
    "spread": "highest throughput of the sentinel runs over the lowest, minus 1",
    "steps of warm-up": (
        "steps before the first three consecutive batches that are not slower than the second half, and any much slower leading steps"
    ),
    "time of slow steps": "excess time of the steps far above the median, over the time of the window",
}
# By the kind of a cause of unstable step times.
_BY_CAUSE = {
    "power_cap": "share of the GPU's samples in the window in which it was throttled by its power limit",
    "thermal": "share of the GPU's samples in the window in which it was throttled by heat",
    "throttling": "share of the GPU's samples in the window in which it was throttled",
    "anti_correlated_gpus": "rank correlation of the two GPUs' utilisation over the samples of the window",
    "gpu_imbalance": "mean utilisation of each GPU over the samples of the window",
    "data_wait_bursts": "steps of the window whose wait for data is far above the usual, and their excess time",
    "data_wait": "median wait for data of the window's steps over their median wall time",
    "slow_rank": _SCORE,
    "host_steal": "mean share of CPU time taken by the hypervisor (steal), over the samples of the window",
    "host_load": "samples of the window in which the CPUs were busy, and with what",
    "telemetry_gaps": "samples that came later than their interval, and the time between them",
    PREFLIGHT: "a check of the host before the first run; unknown whether it still held during the runs",
}
_AS_SEEN = "as in the file: a line, a variable or a setting that the registry of signatures knows"
_DECIDES = (
    "an interval on logs (paired t where runs are paired, else Welch) of 95 %, or more where several groups are compared; the whole of it "
    "must lie on one side of the bound"
)
_COMPARED = {
    "speedup_pct": f"the group's throughput over the baseline's, minus 1, with {_DECIDES}",
    "regression_pct": f"1 minus the group's throughput over the baseline's, with {_DECIDES}",
    "scaling_efficiency": "throughput of one GPU at the largest number of GPUs over that at the smallest, with its 95 % interval on logs",
}
_TREND_NAMES = ("slope of", "growth of", "limit of", "hours until")
_MEMORY_METRICS = frozenset({"leaking_runs", "leak_mib_per_min"})
_TELEMETRY_METRICS = frozenset({"gpu_mem_peak_mib", "host_rss_peak_mib", "gpu_throttled_pct", "gpu_telemetry_empty_ratio"})
_SAMPLED_CAUSES = frozenset(_BY_CAUSE) - {"data_wait_bursts", "data_wait", "slow_rank", PREFLIGHT}
_OUTCOME_METRICS = frozenset({"failed_runs", "halted_runs", "counted_runs", "duration_s", "cause", "halted"})


def how_computed(finding: Finding, evidence: Evidence) -> str:
    """How the number was computed, in one sentence."""
    name = _own_name(evidence)
    for beginning, sentence in _BY_NAME.items():
        if name.startswith(beginning):
            return sentence
    if name in _BY_CAUSE:
        return _BY_CAUSE[name]
    criterion = finding.criterion
    metric = name or (criterion.metric if criterion else "")
    if metric in _COMPARED:
        return _COMPARED[metric]
    entry = metric_entry(metric)
    if entry is None:
        return _AS_SEEN
    scope = criterion.scope if criterion and not name else EVERY_GROUP
    is_estimate = (entry.group_field or "").startswith("figures.")
    if scope in (EVERY_GROUP, WINNER) and is_estimate:
        return _GROUP_MEAN.format("" if name else _DECIDED_BY, entry.meaning)
    return entry.meaning


def _own_name(evidence: Evidence) -> str:
    """The name of the number; empty for the ends of an interval, which belong to the criterion's own figure."""
    return "" if evidence.name.startswith((LOWER_END, UPPER_END)) else evidence.name


def is_reported_by_workload(finding: Finding) -> bool:
    """Whether the workload reported its numbers itself: then the evidence's file is the only raw file."""
    entry = metric_entry(finding.criterion.metric) if finding.criterion else None
    return entry is not None and is_reported(entry)


def compares_groups(finding: Finding, evidence: Evidence) -> bool:
    """Whether the number compares groups, and so was computed from the files of all of them."""
    entry = metric_entry(finding.criterion.metric) if finding.criterion else None
    is_comparison = entry is not None and (entry.compares or entry is METRICS["scaling_efficiency"])
    return is_comparison and _own_name(evidence) in ("", _LOSS)


def raw_kinds(finding: Finding, evidence: Evidence) -> tuple[RawKind, ...]:
    """The kinds of files the number was computed from."""
    metric = _own_name(evidence) or (finding.criterion.metric if finding.criterion else "")
    if metric == PREFLIGHT:
        return ()
    if metric in _MEMORY_METRICS or metric.startswith(_TREND_NAMES):
        return (RawKind.TELEMETRY, RawKind.STEPS)
    if metric in _TELEMETRY_METRICS or metric in _SAMPLED_CAUSES:
        return (RawKind.TELEMETRY,)
    if metric in _OUTCOME_METRICS:
        return (RawKind.OUTCOME, RawKind.LOG)
    if finding.kind == "debug":
        return (RawKind.SETTINGS, RawKind.LOG)
    if metric in METRICS or finding.kind != "criterion" or finding.criterion is None or finding.criterion.scope == EVERY_RUN:
        return (RawKind.STEPS,)
    return (RawKind.STEPS, RawKind.OUTCOME)
