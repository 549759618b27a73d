"""A checked plan to a CampaignPlan: every run with its placeholders filled, its name, its hash and its place in the order.

In: a `Plan`, where it came from, and what the command line chose. Out: `records.campaign_plan.CampaignPlan`, which plan.json holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

from seatrial.errors import PlanError, UsageError, did_you_mean
from seatrial.plan import bundled
from seatrial.plan.checks_of_axes import RANKS_AXIS
from seatrial.plan.criteria import criteria_of
from seatrial.plan.identity import group_key, run_hash, script_digest
from seatrial.plan.matrix import GroupPoint, axis_labels, expand, settings_owner, typed_axes
from seatrial.plan.names import run_name
from seatrial.plan.order import ordered
from seatrial.plan.output_folder import output_folder
from seatrial.plan.placeholders import fill, value_text
from seatrial.plan.placing import Ground, ground_of, place_on
from seatrial.plan.plain_text import wrong_character
from seatrial.plan.schema import Plan
from seatrial.plan.sentinel import as_sentinel, in_between, watched_group
from seatrial.plan.values import LARGEST_WORK
from seatrial.plan.varied import varied_names
from seatrial.records.campaign_plan import SENTINEL, CampaignPlan
from seatrial.records.run_spec import (
    LauncherSpec,
    LimitsSpec,
    RunSpec,
    Scalar,
    StallSpec,
    TelemetrySpec,
    TimingSpec,
    WorkloadSpec,
)

DEFAULT_LOG_EVERY = 50
DEFAULT_TAIL_POINTS = 20
# In a group's key the repeat stays open, so that repeats with arguments of their own are still one group.
_OPEN: dict[str, Scalar] = {"repeat": "{repeat}", "run": "{run}"}


def resolve(
    plan: Plan,
    *,
    source: str,
    cwd: Path,
    only: Sequence[str] = (),
    budget_s: float | None = None,
    output: Path | None = None,
    now: datetime | None = None,
) -> CampaignPlan:
    """The campaign that `plan` asks for; `only`, `budget_s` and `output` are the command line's and win over the plan."""
    cwd = cwd.absolute()
    _refuse_unnameable(cwd, source)
    ground = ground_of(plan, cwd)
    groups = expand(plan, ground.ranks)
    watched = watched_group(plan, groups)
    runs = _all_runs(plan, groups, watched, cwd, ground)
    return CampaignPlan(
        name=plan.name,
        output=str(output_folder(plan, output, cwd, now)),
        source=source,
        axes={name: tuple(values) for name, values in typed_axes(plan, settings_owner(plan)).items()},
        repeats=plan.repeats,
        order=plan.order,
        seed=plan.seed,
        rank_by=plan.rank_by,
        baseline=plan.baseline,
        sentinel_group=watched.name if watched else "",
        sentinel_every=plan.sentinel.every if plan.sentinel else None,
        criteria=criteria_of(plan, [group.name for group in groups], cwd),
        stop_on_error=plan.stop_on_error,
        budget_s=budget_s if budget_s is not None else plan.budget,
        runs=tuple(runs),
        selected=tuple(_chosen(runs, only)),
    )


def _refuse_unnameable(cwd: Path, source: str) -> None:
    """Both are written down with every run, in UTF-8."""
    if wrong_character(str(cwd)):
        raise UsageError(f"the folder this was started in, {cwd}, has a name that is not plain UTF-8; rename it or start elsewhere")
    if wrong_character(source):
        raise UsageError(f"{source}: has a name or words that are not plain UTF-8; rename the file, or write them in UTF-8")


def _all_runs(plan: Plan, groups: Sequence[GroupPoint], watched: GroupPoint | None, cwd: Path, ground: Ground) -> list[RunSpec]:
    def open_key(group: GroupPoint) -> str:
        return group_key(_spec(plan, group, cwd, ground, dict(_OPEN)))

    def run(group: GroupPoint, repeat: int, key: str) -> RunSpec:
        spec = _spec(plan, group, cwd, ground, {"repeat": repeat, "run": run_name(group.name, repeat)})
        return dataclasses.replace(spec, hash=run_hash(spec), group_key=key)

    keys = {group.name: open_key(group) for group in groups}
    runs = [run(group, repeat, keys[group.name]) for group, repeat in ordered(groups, plan.repeats, plan.order, plan.seed)]
    if watched is None or plan.sentinel is None:
        return runs
    point = as_sentinel(watched)
    key = open_key(point)
    return list(in_between(runs, plan.sentinel.every, lambda number: run(point, number, key)))


def _spec(plan: Plan, group: GroupPoint, cwd: Path, ground: Ground, repeat_values: dict[str, Scalar]) -> RunSpec:
    fixed = group.settings if plan.workload.script is not None else {}
    values: dict[str, Scalar] = {"seed": plan.seed, "steps": plan.steps, **fixed, **group.axes, "group": group.name, **repeat_values}
    repeat = repeat_values["repeat"]
    launcher_args = tuple(fill(word, values) for word in plan.launcher.args)
    workload = _workload(plan, values)
    steps = group.settings.get("steps", values["steps"])
    return RunSpec(
        run=str(repeat_values["run"]),
        group=group.name,
        repeat=repeat if isinstance(repeat, int) else 0,
        plan=plan.name,
        mode=SENTINEL if group.sentinel else plan.mode,
        lane=group.lane,
        workload=workload,
        settings=group.settings,
        axes=group.axes,
        labels=axis_labels(plan),
        varied=varied_names(plan),
        launcher=LauncherSpec(kind=plan.launcher.kind, args=launcher_args, program=tuple(plan.launcher.program)),
        place=place_on(plan, ground, group.axes.get(RANKS_AXIS, ground.ranks)),
        env=_environment(plan, group, values),
        cwd=str(cwd),
        steps=steps if isinstance(steps, int) else None,
        rank_scope=plan.rank_scope,
        script_sha256=script_digest(plan.launcher.kind, launcher_args, workload, cwd),
        timing=_timing(plan, steps),
        limits=_limits(plan),
        telemetry=TelemetrySpec(gpu_s=plan.telemetry.gpu_s, host_s=plan.telemetry.host_s),
    )


def _workload(plan: Plan, values: dict[str, Scalar]) -> WorkloadSpec:
    asked = plan.workload
    if asked.module is not None:
        name = bundled.short_name(asked.module)
        return WorkloadSpec(name=name, module=bundled.trainer(name))
    return WorkloadSpec(
        name=Path(str(asked.script)).name,
        script=fill(str(asked.script), values),
        args=tuple(fill(word, values) for word in asked.args),
        reads=asked.reads,
        patterns=tuple(asked.patterns),
        samples_per_step=_work(plan, "samples_per_step", values),
        tokens_per_step=_work(plan, "tokens_per_step", values),
    )


def _work(plan: Plan, key: str, values: dict[str, Scalar]) -> float | None:
    asked = getattr(plan.workload, key)
    if not isinstance(asked, str):
        return None if asked is None else float(asked)
    text = fill(asked, values)
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= LARGEST_WORK:
        raise plan.locations.error(("workload", key), f"{asked} is '{text}' in one group; it must be a number above zero in all of them")
    return number


def _environment(plan: Plan, group: GroupPoint, values: dict[str, Scalar]) -> dict[str, str]:
    written = {name: fill(text, values) for name, text in {**plan.env, **plan.workload.env}.items()}
    varied = {name.removeprefix("env."): value_text(value) for name, value in group.axes.items() if name.startswith("env.")}
    return {**written, **varied}


def _timing(plan: Plan, steps: Scalar) -> TimingSpec:
    asked = plan.timing
    tenth = max(1, steps // 10) if isinstance(steps, int) else DEFAULT_LOG_EVERY
    log_every = asked.log_every or min(DEFAULT_LOG_EVERY, tenth)
    # The first half of a short run's points still has the cold steps in its windows.
    half = max(1, steps // log_every // 2) if isinstance(steps, int) else DEFAULT_TAIL_POINTS
    return TimingSpec(
        window=asked.window,
        log_every=log_every,
        timing_window=asked.timing_window,
        tail_points=asked.tail_points or min(DEFAULT_TAIL_POINTS, half),
        sync=asked.sync,
        phase_every=asked.phase_every,
        eta_mode=asked.eta_mode,
        eta_min_samples=asked.eta_min_samples,
    )


def _limits(plan: Plan) -> LimitsSpec:
    asked = plan.limits
    stall = asked.stall
    return LimitsSpec(
        start_s=asked.start_s,
        run_s=asked.run_s,
        stall=None if stall is None else StallSpec(factor=stall.factor, floor_s=stall.floor_s, quiet_s=stall.quiet_s),
        soft_s=asked.soft_s,
        term_s=asked.term_s,
        memory_gib=asked.memory_gib,
        disk_gib=asked.disk_gib,
        stack_signal=asked.stack_signal,
        spike_ratio=asked.spike_ratio,
    )


def _chosen(runs: list[RunSpec], only: Sequence[str]) -> list[str]:
    """Names of the runs that `only` asks for; empty when it asks for none, which means all."""
    for pattern in only:
        if not any(_matches(run, pattern) for run in runs):
            raise PlanError(f"no group or run is called '{pattern}'; {did_you_mean(pattern, {run.group for run in runs})}", key="--only")
    return [run.run for run in runs if any(_matches(run, pattern) for pattern in only)]


def _matches(run: RunSpec, pattern: str) -> bool:
    return fnmatchcase(run.group, pattern) or fnmatchcase(run.run, pattern)
