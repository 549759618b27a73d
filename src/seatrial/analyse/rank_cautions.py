"""What a reader must know to weigh a ranking.

In: the groups and the metric. Out: cautions: single repeats, steps of unlike size compared, groups on unlike machines, failures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seatrial.analyse.debug_switches import switched_on
from seatrial.analyse.rank_metric import Metric
from seatrial.records.caution import Caution
from seatrial.records.measure import GroupSummary
from seatrial.records.run_spec import Scalar
from seatrial.wording import named

# Axis names that say how much one step does.
BATCH_NAME = re.compile(
    r"(?:^|_)(?:m?bs|mb|bsz|batch|batch_?size|microbatch|seq_?len|block_?size|sequence_?length|accum\w*)(?:_|$)", re.IGNORECASE
)
# What must be alike for two groups to be compared; seeds' columns, so that they are in every summary.
MACHINE = ("gpu_name", "gpu_cc", "gpu_power_limit_w", "driver_version", "git_commit_short")


def ranking_cautions(groups: Sequence[GroupSummary], metric: Metric) -> Iterator[Caution]:
    """Everything that weakens the order, the gravest first."""
    running = [group for group in groups if group.runs]
    yield from _steps_compared(running, metric)
    yield from _one_repeat(running)
    yield from _unlike_groups(running)
    yield from _failed_by_platform(groups)
    yield from _mixed_debug(running)


def _steps_compared(running: Sequence[GroupSummary], metric: Metric) -> Iterator[Caution]:
    axes = varying_batch_axes(running)
    if not axes or metric.name not in ("steps_per_s", "wall_p50_ms", "duration_s", "iter_p50"):
        return
    if metric.name == "duration_s":
        text = (
            f"Whole runs are compared while '{axes[0]}' varies: a run may not do the same work in every group, so the order may mean "
            "nothing. Let the script tell its steps, and give samples_per_step."
        )
    else:
        text = (
            f"Steps are compared by {metric.unit} while '{axes[0]}' varies: a step does not do the same work in every group, so the order "
            f'may mean nothing. Give samples_per_step (for example samples_per_step: "{{{axes[0]}}}"), or let the script tell it.'
        )
    yield Caution(kind="steps_compared", numbers={"axis": axes[0]}, text=text)


def varying_batch_axes(groups: Sequence[GroupSummary]) -> list[str]:
    """Axes with several values whose name says how much one step does."""
    values: dict[str, set[Scalar]] = {}
    for group in groups:
        for name, value in group.axes.items():
            values.setdefault(name, set()).add(value)
    return [name for name, seen in values.items() if len(seen) > 1 and BATCH_NAME.search(name)]


def _one_repeat(running: Sequence[GroupSummary]) -> Iterator[Caution]:
    single = [group.group for group in running if group.runs == 1]
    if single and len(running) > 1:
        which = "Every group has" if len(single) == len(running) else f"{len(single)} of {len(running)} groups have"
        yield Caution(
            kind="one_repeat",
            numbers={"groups": len(single)},
            text=f"{which} one run only: there is no interval and the order is not evidence; use repeats: 3 or more.",
        )


def _unlike_groups(running: Sequence[GroupSummary]) -> Iterator[Caution]:
    if len({group.fingerprint for group in running}) > 1:
        differing = [name for name in MACHINE if len({group.seed.get(name) for group in running}) > 1] or [
            "host, Python, torch, or variables of the caller"
        ]
        yield Caution(
            kind="unlike_groups",
            text=f"Groups were run under unlike conditions ({', '.join(differing)}), so a difference between them may not come from their "
            "settings; run them again together.",
        )


def _failed_by_platform(groups: Sequence[GroupSummary]) -> Iterator[Caution]:
    failed = [run for group in groups for run in group.infrastructure_failures]
    if failed:
        runs = "1 run was" if len(failed) == 1 else f"{len(failed)} runs were"
        yield Caution(
            kind="failed_by_platform",
            numbers={"runs": len(failed)},
            text=f"{runs} failed by the platform and not by the settings ({named(failed)}): they weigh on no group, and "
            "until they have been run again on a healthy one, with the same command, no difference here may be put down to the code.",
        )


def _mixed_debug(running: Sequence[GroupSummary]) -> Iterator[Caution]:
    if len({switched_on(group.debug) for group in running}) > 1:
        having = [f"{group.group} ({', '.join(group.debug)})" for group in running if group.debug]
        yield Caution(
            kind="mixed_debug",
            numbers={"groups": len(having)},
            text=f"Some groups were measured with debug or tracing on and some without ({named(having)}): they must not "
            "be compared; switch it off and run them again.",
        )
