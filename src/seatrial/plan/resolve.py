"""Turns a checked plan into a CampaignPlan: every run with placeholders filled, its name, hash and position in the order.

In: a `Plan`, its source, and what the command line chose. Out: `records.plan.CampaignPlan`, which plan.json holds, and an
estimate of how long it takes.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean

from seatrial.core.errors import PlanError, UsageError, did_you_mean
from seatrial.core.paths import CampaignPaths
from seatrial.plan import workloads
from seatrial.plan.criteria import criteria_of
from seatrial.plan.matrix import (
    GroupPoint,
    as_sentinel,
    axis_labels,
    equalize_groups,
    expand,
    insert_sentinel_runs,
    run_name,
    run_order,
    sentinel_group,
    settings_owner,
    typed_axes,
    varied_names,
)
from seatrial.plan.place import Capacity, capacity_of, place_at
from seatrial.plan.placeholders import PlaceholderProblem, fill, names_in, value_text, work_value
from seatrial.plan.run_hash import group_key, run_hash, script_digest
from seatrial.plan.schema import LARGEST_WORK, Plan
from seatrial.plan.yaml_text import character_problem
from seatrial.records.caution import Scalar
from seatrial.records.plan import (
    SENTINEL,
    CampaignPlan,
    LauncherSpec,
    NeededCampaign,
    RunSpec,
    TimingSpec,
    WorkloadSpec,
)
from seatrial.records.stored import read_plan
from seatrial.records.verdict import Criterion

DEFAULT_LOG_EVERY = TimingSpec.log_every
DEFAULT_TAIL_POINTS = TimingSpec.tail_points
# What a stored plan may hold: a label as in a plan, and the name of a folder.
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9.-]{0,39}")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
# The repeat stays open in a group's key: repeats whose arguments differ are still one group.
_OPEN: dict[str, Scalar] = {"repeat": "{repeat}", "run": "{run}"}


def resolve_plan(
    plan: Plan,
    *,
    source: str,
    cwd: Path,
    only: Sequence[str] = (),
    budget_s: float | None = None,
    output: Path | None = None,
    now: datetime | None = None,
) -> CampaignPlan:
    """The campaign of `plan`; `only`, `budget_s` and `output` come from the command line and override the plan."""
    cwd = cwd.absolute()
    _refuse_unnameable(cwd, source)
    capacity = capacity_of(plan, cwd)
    folder = output_folder(plan, output, cwd, now)
    kept = read_stored_names(folder, plan.name)
    groups, equalized_notes = equalize_groups(plan, expand(plan, capacity.ranks, kept.labels))
    watched = sentinel_group(plan, groups)
    named = _all_runs(plan, groups, watched, cwd, capacity, kept.labels)
    old_names = kept.renames(named)
    runs = [_under_old_name(run, old_names) for run in named]
    return CampaignPlan(
        name=plan.name,
        output=str(folder),
        source=source,
        axes={name: tuple(values) for name, values in typed_axes(plan, settings_owner(plan)).items()},
        repeats=plan.repeats,
        order=plan.order,
        seed=plan.seed,
        rank_by=plan.rank_by,
        baseline=old_names.get(plan.baseline, plan.baseline),
        sentinel_group=old_names.get(watched.name, watched.name) if watched else "",
        sentinel_every=plan.sentinel.every if plan.sentinel else None,
        criteria=tuple(_with_old_baseline(each, old_names) for each in criteria_of(plan, [group.name for group in groups], cwd)),
        needs=_needs(plan, cwd),
        stop_on_error=plan.stop_on_error,
        budget_s=budget_s if budget_s is not None else plan.budget,
        runs=tuple(runs),
        selected=tuple(_selected_runs(runs, named, only)),
        alike=equalized_notes,
    )


def _needs(plan: Plan, cwd: Path) -> NeededCampaign | None:
    """The needed campaign with an absolute folder."""
    if plan.needs is None:
        return None
    try:
        folder = cwd / Path(plan.needs.campaign).expanduser()
    except RuntimeError as error:
        raise plan.error(("needs", "campaign"), f"{plan.needs.campaign} cannot be found: no such user; write the absolute path") from error
    return NeededCampaign(campaign=str(folder), ready=plan.needs.ready or "", plan=plan.needs.plan or "")


def _refuse_unnameable(cwd: Path, source: str) -> None:
    """Refuse paths that are not UTF-8: both are recorded with every run."""
    if character_problem(str(cwd)):
        raise UsageError(f"the folder this was started in, {cwd}, has a name that is not plain UTF-8; rename it or start elsewhere")
    if character_problem(source):
        raise UsageError(f"{source}: has a name or words that are not plain UTF-8; rename the file, or write them in UTF-8")


def _all_runs(
    plan: Plan, groups: Sequence[GroupPoint], watched: GroupPoint | None, cwd: Path, capacity: Capacity, kept_labels: Mapping[str, str]
) -> list[RunSpec]:
    labels = axis_labels(plan, kept_labels)

    def open_key(group: GroupPoint) -> str:
        return group_key(_spec(plan, group, cwd, capacity, dict(_OPEN)))

    def run(group: GroupPoint, repeat: int, key: str) -> RunSpec:
        spec = _spec(plan, group, cwd, capacity, {"repeat": repeat, "run": run_name(group.name, repeat)})
        return dataclasses.replace(spec, hash=run_hash(spec), group_key=key, labels=labels)

    keys = {group.name: open_key(group) for group in groups}
    runs = [run(group, repeat, keys[group.name]) for group, repeat in run_order(groups, plan.repeats, plan.order, plan.seed)]
    if watched is None or plan.sentinel is None:
        return runs
    point = as_sentinel(watched)
    key = open_key(point)
    return list(insert_sentinel_runs(runs, plan.sentinel.every, lambda number: run(point, number, key)))


def _spec(plan: Plan, group: GroupPoint, cwd: Path, capacity: Capacity, repeat_values: dict[str, Scalar]) -> RunSpec:
    fixed = group.settings if plan.workload.script is not None else {}
    values: dict[str, Scalar] = {"seed": plan.seed, "steps": plan.steps, **fixed, **group.axes, "group": group.name, **repeat_values}
    repeat = repeat_values["repeat"]
    launcher_args = tuple(fill(argument, values) for argument in plan.launcher.args)
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
        varied=varied_names(plan),
        launcher=LauncherSpec(kind=plan.launcher.kind, args=launcher_args, program=tuple(plan.launcher.program)),
        place=place_at(plan, capacity, group.axes),
        env=_environment(plan, group, values),
        cwd=str(cwd),
        steps=steps if isinstance(steps, int) else None,
        rank_scope=plan.rank_scope,
        script_sha256=script_digest(plan.launcher.kind, launcher_args, workload, cwd),
        timing=_timing(plan, steps),
        limits=plan.limits,
        telemetry=plan.telemetry,
    )


def _workload(plan: Plan, values: dict[str, Scalar]) -> WorkloadSpec:
    workload = plan.workload
    if workload.module is not None:
        name = workloads.short_name(workload.module)
        return WorkloadSpec(
            name=name,
            module=workloads.trainer_module(name),
            sample_size=workloads.sample_size(name),
            follows=workloads.follows(name),
            alike_by=workloads.alike_by(name),
        )
    return WorkloadSpec(
        name=Path(str(workload.script)).name,
        script=fill(str(workload.script), values),
        args=tuple(fill(argument, values) for argument in workload.args),
        steps_args=tuple(place for place, argument in enumerate(workload.args) if "steps" in names_in(argument)),
        reads=workload.reads,
        patterns=tuple(workload.patterns),
        samples_per_step=_work(plan, "samples_per_step", values),
        tokens_per_step=_work(plan, "tokens_per_step", values),
    )


def _work(plan: Plan, key: str, values: dict[str, Scalar]) -> float | None:
    written = getattr(plan.workload, key)
    if not isinstance(written, str):
        return None if written is None else float(written)
    try:
        number = work_value(written, values)
    except PlaceholderProblem as problem:
        raise plan.error(("workload", key), str(problem)) from problem
    if not 0 < number <= LARGEST_WORK:
        raise plan.error(("workload", key), f"{written} is {number} in one group; it must be above zero in all of them")
    return float(number)


def _environment(plan: Plan, group: GroupPoint, values: dict[str, Scalar]) -> dict[str, str]:
    written = {name: fill(text, values) for name, text in {**plan.env, **plan.workload.env}.items()}
    varied = {name.removeprefix("env."): value_text(value) for name, value in group.axes.items() if name.startswith("env.")}
    return {**written, **varied}


def _timing(plan: Plan, steps: Scalar) -> TimingSpec:
    timing = plan.timing
    tenth = max(1, steps // 10) if isinstance(steps, int) else DEFAULT_LOG_EVERY
    log_every = timing.log_every or min(DEFAULT_LOG_EVERY, tenth)
    # In a short run the windows of the first half of the points still hold cold steps.
    half = max(1, steps // log_every // 2) if isinstance(steps, int) else DEFAULT_TAIL_POINTS
    tail_points = timing.tail_points or min(DEFAULT_TAIL_POINTS, half)
    return TimingSpec(**{**vars(timing), "log_every": log_every, "tail_points": tail_points})


def _selected_runs(runs: list[RunSpec], named: list[RunSpec], only: Sequence[str]) -> list[str]:
    """The runs that `--only` selects, by the folder's names or the plan's (`named`); empty for all."""
    pairs = list(zip(runs, named, strict=True))
    for pattern in only:
        if not any(_matches(run, pattern) for pair in pairs for run in pair):
            raise PlanError(f"no group or run is called '{pattern}'; {did_you_mean(pattern, {run.group for run in runs})}", key="--only")
    return [pair[0].run for pair in pairs if any(_matches(run, pattern) for pattern in only for run in pair)]


def _matches(run: RunSpec, pattern: str) -> bool:
    return fnmatchcase(run.group, pattern) or fnmatchcase(run.run, pattern)


@dataclass(frozen=True, kw_only=True)
class StoredNames:
    """Names that runs of this plan have in the campaign's folder already. They stay, whatever the plan would name them today: the hash
    identifies a run, and another name would be another folder."""

    labels: dict[str, str] = field(default_factory=dict)
    """Axis → label."""
    groups: dict[str, str] = field(default_factory=dict)
    """group_key → name of the group."""

    def renames(self, runs: Sequence[RunSpec]) -> dict[str, str]:
        """Today's name of a group → the one it has in the folder, where they differ and no other group has that name."""
        today = {run.group: run.group_key for run in runs if run.mode != SENTINEL}
        found = {name: self.groups[key] for name, key in today.items() if self.groups.get(key, name) != name}
        taken = {name.lower() for name in today if name not in found}
        return {name: old for name, old in found.items() if old.lower() not in taken}


def read_stored_names(folder: Path, plan_name: str) -> StoredNames:
    """Names of the plan that was last run into the folder under this name; none for a new folder."""
    paths = CampaignPaths(folder)
    candidates = (read_plan(path)[0] for path in (paths.plans / f"{plan_name}.json", paths.plan))
    stored = next((plan for plan in candidates if plan is not None and plan.name == plan_name), None)
    runs = [run for run in stored.runs if _FOLDER_NAME.fullmatch(run.run) and paths.run(run.run).folder.is_dir()] if stored else []
    return StoredNames(
        labels={axis: label for run in runs for axis, label in run.labels.items() if _LABEL.fullmatch(label)},
        groups={run.group_key: run.group for run in runs if run.group_key and run.mode != SENTINEL and run.run.startswith(run.group)},
    )


def _under_old_name(run: RunSpec, old_names: Mapping[str, str]) -> RunSpec:
    group = old_names.get(run.group)
    return run if group is None or run.mode == SENTINEL else dataclasses.replace(run, group=group, run=run_name(group, run.repeat))


def _with_old_baseline(criterion: Criterion, old_names: Mapping[str, str]) -> Criterion:
    criterion = dataclasses.replace(criterion, group=old_names.get(criterion.group, criterion.group))
    baseline = criterion.baseline
    if baseline is None or baseline.campaign or baseline.group not in old_names:
        return criterion
    return dataclasses.replace(criterion, baseline=dataclasses.replace(baseline, group=old_names[baseline.group]))


# Linux's limits for a name and for a path.
LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 4095
# For a run's folder, its attempt's, and the longest file name in it, temporary suffix included.
ROOM_BYTES = 256


def output_folder(plan: Plan, out: Path | None, cwd: Path, now: datetime | None = None) -> Path:
    """The campaign's folder, absolute; `out` comes from `--out` and overrides the plan. Nothing is created."""
    stamp = (now or datetime.now()).strftime("%Y%m%d_%H%M%S")
    text = str(out).replace("{time}", stamp) if out is not None else fill(plan.output or f"outputs/{plan.name}", {"time": stamp})
    line_break = "contains a line break or a tab; name a folder without" if set(text) & set("\n\t") else None
    if problem := character_problem(text) or line_break:
        raise _folder_error(plan, out, problem)
    try:
        folder = cwd / Path(text).expanduser()
    except RuntimeError as error:
        raise _folder_error(plan, out, f"{text} cannot be found: no such user; write the absolute path") from error
    if problem := _length_problem(folder):
        raise _folder_error(plan, out, problem)
    return folder


def _length_problem(folder: Path) -> str | None:
    names = [len(os.fsencode(part)) for part in folder.parts]
    if max(names) > LONGEST_NAME_BYTES:
        return f"one of its names has {max(names)} bytes, more than the {LONGEST_NAME_BYTES} a file system takes; name it shorter"
    whole = len(os.fsencode(folder))
    if whole + ROOM_BYTES > LONGEST_PATH_BYTES:
        return f"the path has {whole} bytes, too long for the files in it (limit {LONGEST_PATH_BYTES}); choose a shorter one"
    return None


def _folder_error(plan: Plan, out: Path | None, problem: str) -> PlanError:
    return plan.error(("output",), problem) if out is None else PlanError(problem, key="--out")


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """Time for the selected runs of a plan, one after the other."""

    runs: int
    total_s: float | None
    """Estimated time; None if no run was measured yet."""
    at_most_s: float | None
    """Bound from limits.run_s and the budget; None where neither is set."""
    measured_groups: int
    groups: int


def estimate_time(plan: CampaignPlan, known_s: Mapping[str, float]) -> TimeEstimate:
    """Sum over the runs; `known_s` has measured durations by group_key, and their mean stands in for the other groups."""
    runs = plan.chosen
    keys = [run.group_key for run in runs]
    measured = {key: known_s[key] for key in keys if key in known_s}
    mean_s = fmean(measured.values()) if measured else None
    limits_s = [run.limits.run_s for run in runs if run.limits.run_s is not None]
    bounds_s = [sum(limits_s)] if runs and len(limits_s) == len(runs) else []
    bounds_s += [plan.budget_s] if plan.budget_s is not None else []
    return TimeEstimate(
        runs=len(keys),
        total_s=None if mean_s is None else sum(measured.get(key, mean_s) for key in keys),
        at_most_s=min(bounds_s, default=None),
        measured_groups=len(measured),
        groups=len(set(keys)),
    )
