"""A checked plan to a CampaignPlan: every run with placeholders filled, its name, hash and position in the order.

In: a `Plan`, its source, and what the command line chose. Out: `records.plan.CampaignPlan`, which plan.json holds, and an
estimate of how long it takes.

The hash of a run covers everything that changes its result and nothing else: limits, criteria, order, how lines are read and the folder
it runs in may change without running anything again. Equal numbers hash alike (8 and 8.0); where a script would see different text, its
arguments differ and so does the hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import Any

from seatrial.core.errors import PlanError, UsageError, did_you_mean
from seatrial.plan import workloads
from seatrial.plan.criteria import criteria_of
from seatrial.plan.matrix import (
    GroupPoint,
    as_sentinel,
    axis_labels,
    expand,
    insert_sentinel_runs,
    run_name,
    run_order,
    sentinel_group,
    settings_owner,
    typed_axes,
    varied_names,
)
from seatrial.plan.place import Capacity, capacity_of, place_for_ranks
from seatrial.plan.placeholders import PlaceholderProblem, fill, value_text, work_value
from seatrial.plan.schema import LARGEST_WORK, RANKS_AXIS, Plan
from seatrial.plan.yaml_text import character_problem
from seatrial.records.caution import Scalar
from seatrial.records.plan import (
    HOSTFILE,
    PERNODE,
    SENTINEL,
    CampaignPlan,
    LauncherSpec,
    PlaceSpec,
    RunSpec,
    TimingSpec,
    WorkloadSpec,
)

DEFAULT_LOG_EVERY = TimingSpec.log_every
DEFAULT_TAIL_POINTS = TimingSpec.tail_points
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
    groups = expand(plan, capacity.ranks)
    watched = sentinel_group(plan, groups)
    runs = _all_runs(plan, groups, watched, cwd, capacity)
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
        selected=tuple(_selected_runs(runs, only)),
    )


def _refuse_unnameable(cwd: Path, source: str) -> None:
    """Both are recorded with every run, in UTF-8."""
    if character_problem(str(cwd)):
        raise UsageError(f"the folder this was started in, {cwd}, has a name that is not plain UTF-8; rename it or start elsewhere")
    if character_problem(source):
        raise UsageError(f"{source}: has a name or words that are not plain UTF-8; rename the file, or write them in UTF-8")


def _all_runs(plan: Plan, groups: Sequence[GroupPoint], watched: GroupPoint | None, cwd: Path, capacity: Capacity) -> list[RunSpec]:
    def open_key(group: GroupPoint) -> str:
        return group_key(_spec(plan, group, cwd, capacity, dict(_OPEN)))

    def run(group: GroupPoint, repeat: int, key: str) -> RunSpec:
        spec = _spec(plan, group, cwd, capacity, {"repeat": repeat, "run": run_name(group.name, repeat)})
        return dataclasses.replace(spec, hash=run_hash(spec), group_key=key)

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
        labels=axis_labels(plan),
        varied=varied_names(plan),
        launcher=LauncherSpec(kind=plan.launcher.kind, args=launcher_args, program=tuple(plan.launcher.program)),
        place=place_for_ranks(plan, capacity, group.axes.get(RANKS_AXIS, capacity.ranks)),
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
        return WorkloadSpec(name=name, module=workloads.trainer_module(name))
    return WorkloadSpec(
        name=Path(str(workload.script)).name,
        script=fill(str(workload.script), values),
        args=tuple(fill(argument, values) for argument in workload.args),
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


def _selected_runs(runs: list[RunSpec], only: Sequence[str]) -> list[str]:
    """The runs that `--only` selects; empty for all."""
    for pattern in only:
        if not any(_matches(run, pattern) for run in runs):
            raise PlanError(f"no group or run is called '{pattern}'; {did_you_mean(pattern, {run.group for run in runs})}", key="--only")
    return [run.run for run in runs if any(_matches(run, pattern) for pattern in only)]


def _matches(run: RunSpec, pattern: str) -> bool:
    return fnmatchcase(run.group, pattern) or fnmatchcase(run.run, pattern)


HASH_DIGITS = 16


def group_key(spec: RunSpec) -> str:
    """Hash of a configuration; the placeholders of the repeat must still be open in `spec`."""
    return _hash(_identity(spec))


def run_hash(spec: RunSpec) -> str:
    """Hash of one run: its configuration and its repeat."""
    return _hash({**_identity(spec), "repeat": spec.repeat})


def script_digest(launcher: str, launcher_args: tuple[str, ...], workload: WorkloadSpec, cwd: Path) -> str | None:
    """sha256 of the user's script: the file itself, a module found under `cwd`, or the first script among a program's arguments."""
    if workload.script is None:
        return None
    names = [workload.script, *_module_files(workload.script, launcher_args)]
    names += [argument for argument in workload.args if launcher == "command" and argument.endswith((".py", ".sh"))]
    digests = (_file_digest(cwd / name) for name in names)
    return next((digest for digest in digests if digest is not None), None)


def _file_digest(file: Path) -> str | None:
    """None for what is not a readable file; preflight says whether it can be started."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    except OSError:
        return None


def _module_files(script: str, launcher_args: tuple[str, ...]) -> list[str]:
    if not {"-m", "--module"} & set(launcher_args):
        return []
    path = script.replace(".", "/")
    return [f"{path}.py", f"{path}/__main__.py"]


def _identity(spec: RunSpec) -> dict[str, Any]:
    return {
        "workload": [spec.workload.module, spec.workload.script, list(spec.workload.args)],
        "script_sha256": spec.script_sha256,
        "settings": spec.settings,
        "axes": spec.axes,
        "launcher": [spec.launcher.kind, list(spec.launcher.args), list(spec.launcher.program)],
        "place": _place_identity(spec.place),
        "env": spec.env,
        "steps": spec.steps,
        "rank_scope": spec.rank_scope,
        "timing": [spec.timing.sync, spec.timing.phase_every],
        # Sentinel runs are not repeats of the group they copy.
        **({SENTINEL: True} if spec.mode == SENTINEL else {}),
    }


def _place_identity(place: PlaceSpec) -> list[Any]:
    """How ranks and GPUs are laid out; which hosts these are and how they are reached does not change the result."""
    counts: list[Any] = [place.kind, place.ranks, list(place.devices)]
    if place.hosts:
        # `include` and `exclude` are applied already.
        counts.append([[host.ranks, list(host.devices)] for host in place.hosts])
    elif place.kind == HOSTFILE:
        counts += [place.include, place.exclude]
    elif place.kind == PERNODE:
        counts.append(place.nodes)
    return [*counts, *([{"interface": place.interface}] if place.interface else [])]


def _hash(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:HASH_DIGITS]


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
        raise _folder_error(plan, out, f"{text} cannot be found: no such user; write the whole path") from error
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
    """None if no run was measured yet."""
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
