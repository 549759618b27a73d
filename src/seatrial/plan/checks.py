"""Checks between the keys of a plan: one workload, axes that reach it, placeholders that can be filled, bounds that bind.

In: a `Plan` whose single keys are valid. Out: nothing, or a PlanError at the key to change. Launcher and place are checked in `place`,
criteria in `criteria`, the settings of a bundled workload in `workloads`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from seatrial.core.errors import UsageError, did_you_mean
from seatrial.core.hostfile import host_name_problem
from seatrial.core.log_lines import LOG_FORMATS, timed_patterns
from seatrial.machine.network import interface_variables
from seatrial.machine.secrets import mask
from seatrial.plan.criteria import CRITERIA_PRESETS, check_criteria
from seatrial.plan.place import check_launcher, check_place
from seatrial.plan.placeholders import PlaceholderProblem, names_in, value_text
from seatrial.plan.schema import (
    ENV_AXIS,
    NODES_AXIS,
    RANKS_AXIS,
    Axis,
    Plan,
    Workload,
    bundled_settings,
    is_harness_axis,
    type_and_value,
)
from seatrial.plan.yaml_text import KeyPath, format_value
from seatrial.records.plan import NODE_AXIS, SENTINEL

RUN_NAMES = ("run", "group", "repeat", "seed")
"""Placeholders that every plan has; `steps` too where the plan sets it."""
# Set for each rank when it starts: a fixed value would be overwritten.
SET_FOR_EACH_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def check_plan(plan: Plan) -> None:
    """Raise a PlanError for the first pair of keys that contradict each other."""
    _check_workload(plan)
    _check_log_format(plan)
    check_launcher(plan)
    check_place(plan)
    _check_environment(plan)
    used = names_that_reach_the_run(plan)
    check_script_settings(plan, used)
    check_axes(plan, used)
    _check_placeholders(plan)
    _check_timing(plan)
    _check_limits(plan)
    if plan.mode == SENTINEL:
        raise plan.error(("mode",), f"'{SENTINEL}' is the mode of the runs that the key `sentinel` adds; use another")
    check_criteria(plan)
    _check_needs(plan)
    _check_output(plan)


def templates(plan: Plan) -> Iterator[tuple[KeyPath, str]]:
    """Every text with placeholders, and its key."""
    if plan.workload.script is not None:
        yield ("workload", "script"), plan.workload.script
    for position, argument in enumerate(plan.workload.args):
        yield ("workload", "args", position), argument
    for position, argument in enumerate(plan.launcher.args):
        yield ("launcher", "args", position), argument
    for name, text in plan.workload.env.items():
        yield ("workload", "env", name), text
    for name, text in plan.env.items():
        yield ("env", name), text
    for key in ("samples_per_step", "tokens_per_step"):
        value = getattr(plan.workload, key)
        if isinstance(value, str):
            yield ("workload", key), value


def names_that_reach_the_run(plan: Plan) -> set[str]:
    """Placeholders in arguments and variables. Those of samples_per_step and tokens_per_step do not change a run."""
    used: set[str] = set()
    for path, text in templates(plan):
        try:
            names = names_in(text)
        except PlaceholderProblem as problem:
            raise plan.error(path, str(problem)) from problem
        used.update(names if not str(path[-1]).endswith("_per_step") else ())
    return used


def _check_workload(plan: Plan) -> None:
    module, script = plan.workload.module, plan.workload.script
    if (module is None) == (script is None):
        missing = "names neither `module` nor `script`" if module is None else "names both `module` and `script`"
        raise plan.error(("workload",), f"{missing}; give a bundled workload or a script of your own")
    if script is not None and not script.strip():
        raise plan.error(("workload", "script"), "is empty; name a script or program")
    if module is not None:
        _check_bundled_keys(plan)


def _check_bundled_keys(plan: Plan) -> None:
    defaults = Workload()
    for key in ("args", "reads", "patterns", "samples_per_step", "tokens_per_step"):
        if getattr(plan.workload, key) != getattr(defaults, key):
            raise plan.error(
                ("workload", key), "is for scripts of your own; a bundled workload takes `settings` and reports its steps itself"
            )
    if plan.launcher.kind == "command":
        raise plan.error(
            ("launcher", "kind"), "'command' starts a program of your own; a bundled workload needs python, torchrun or deepspeed"
        )


def _check_log_format(plan: Plan) -> None:
    reads = plan.workload.reads
    if reads not in (*LOG_FORMATS, "auto", "none"):
        raise plan.error(("workload", "reads"), f"unknown log format '{reads}'; {did_you_mean(reads, (*LOG_FORMATS, 'auto', 'none'))}")
    for position, pattern in enumerate(plan.workload.patterns):
        try:
            timed_patterns([pattern])
        except UsageError as error:
            raise plan.error(("workload", "patterns", position), str(error)) from error


def _check_environment(plan: Plan) -> None:
    variables: list[KeyPath] = [("env", name) for name in plan.env] + [("workload", "env", name) for name in plan.workload.env]
    for path in variables:
        problem = variable_problem(str(path[-1]))
        if problem:
            raise plan.error(path, problem)
        if str(path[-1]).startswith("SEATRIAL_") or path[-1] in _set_for_each_rank(plan):
            raise plan.error(path, "is set for each rank at its start; leave it out")
        key = _place_key_that_sets(str(path[-1]), plan)
        if key:
            raise plan.error(path, f"is set from place.{key}; keep one of the two")


def _place_key_that_sets(name: str, plan: Plan) -> str | None:
    """The key of `place` that sets this variable for the ranks."""
    place, many = plan.place, not plan.place.traits.is_this_machine
    if name == "CUDA_VISIBLE_DEVICES":
        # Hosts named without slots do not select GPUs.
        return next((key for key, text in (("include", place.include), ("exclude", place.exclude)) if text and ":" in text), None)
    if many and name in ("MASTER_ADDR", "MASTER_PORT"):
        return "master_addr" if name == "MASTER_ADDR" else "port"
    return "interface" if name in interface_variables(place.interface or "") else None


def _set_for_each_rank(plan: Plan) -> tuple[str, ...]:
    """Variables set for each rank; a single plain process runs as it would without Seatrial."""
    if plan.launcher.kind == "deepspeed":
        # deepspeed names the last one differently.
        return SET_FOR_EACH_RANK[:-1]
    many = not plan.place.traits.is_this_machine or (plan.place.ranks or 1) > 1
    several = plan.launcher.kind == "torchrun" or (plan.launcher.kind == "python" and many)
    return SET_FOR_EACH_RANK if several else ()


def _check_placeholders(plan: Plan) -> None:
    known = {*plan.axes, *RUN_NAMES, *(("steps",) if plan.steps is not None else ())}
    if plan.workload.script is not None:
        known |= {*plan.settings, *bundled_settings(plan)}
    for path, text in templates(plan):
        for name in names_in(text):
            if name not in known and name == "steps":
                raise plan.error(path, "{steps} cannot be filled: the plan sets no `steps`")
            if name not in known:
                hint = f"{did_you_mean(name, known)} (for braces of your own write {{{{ and }}}})"
                raise plan.error(path, f"{{{name}}} is not an axis or setting of the plan; {hint}")


def _check_timing(plan: Plan) -> None:
    log_every, steps = plan.timing.log_every, plan.steps
    if log_every is not None and steps is not None and log_every > steps:
        raise plan.error(
            ("timing", "log_every"), f"{log_every} is larger than steps ({steps}): no timing point would be recorded; lower it"
        )
    first, colon, last = plan.timing.window.partition(":")
    if colon and first and last and int(first) >= int(last):
        raise plan.error(("timing", "window"), f"'{plan.timing.window}' is empty: the first step must be below the last")


def _check_limits(plan: Plan) -> None:
    if plan.limits.memory_gib is not None and plan.telemetry.host_s is None:
        raise plan.error(
            ("limits", "memory_gib"),
            "is judged by the samples of host_telemetry.csv, and telemetry.host_s is null; sample the host or leave the limit out",
        )
    if plan.workload.module is not None and plan.limits.stall is not None and plan.limits.stall.quiet_s is not None:
        raise plan.error(
            ("limits", "stall", "quiet_s"), "is for scripts of your own; a bundled workload reports its steps itself, so leave it out"
        )


def _check_needs(plan: Plan) -> None:
    needs = plan.needs
    if needs is None:
        return
    for key in ("campaign", "plan"):
        value = getattr(needs, key)
        if value is not None and not value.strip():
            raise plan.error(("needs", key), "is empty; name one, or leave the key out")
    if needs.ready is not None and needs.ready not in CRITERIA_PRESETS:
        raise plan.error(("needs", "ready"), f"no criteria preset is called '{needs.ready}'; {did_you_mean(needs.ready, CRITERIA_PRESETS)}")


def _check_output(plan: Plan) -> None:
    if plan.output is None:
        return
    try:
        names = names_in(plan.output)
    except PlaceholderProblem as problem:
        raise plan.error(("output",), str(problem)) from problem
    wrong = [name for name in names if name != "time"]
    if wrong:
        raise plan.error(("output",), f"{{{wrong[0]}}} cannot stand here; only {{time}} can")
    if not plan.output.strip():
        raise plan.error(("output",), "is empty; name a folder or leave the key out")


RESERVED = ("run", "group", "repeat")
# An axis becomes a column of every table.
LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BUNDLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


def check_axes(plan: Plan, used: set[str]) -> None:
    """Raise for the first axis with a bad name, no or duplicate values, fixed elsewhere, or unused."""
    for name, axis in plan.axes.items():
        _check_axis_name(plan, name)
        if axis.bundles:
            _check_bundles(plan, name, axis)
        else:
            _check_axis_values(plan, name, axis)
        _check_not_fixed(plan, name, ("axes", name))
        if plan.workload.script is not None and not is_harness_axis(name) and not axis.bundles:
            _check_is_used(plan, name, ("axes", name), used)
    _check_labels(plan)
    _check_bundled_settings(plan, used)


def check_script_settings(plan: Plan, used: set[str]) -> None:
    """Raise for the first setting of a script with a bad name, or unused."""
    for name in plan.settings if plan.workload.script is not None else ():
        _check_placeholder_name(plan, name, ("settings", name))
        _check_is_used(plan, name, ("settings", name), used)


def _check_is_used(plan: Plan, name: str, path: KeyPath, used: set[str]) -> None:
    if name not in used:
        what = "the axis" if path == ("axes", name) else "it"
        raise plan.error(path, f"nothing uses it: put {{{name}}} into workload.args where its value belongs, or remove {what}")


def _check_bundles(plan: Plan, name: str, axis: Axis) -> None:
    beside = next((key for key in ("values", "label") if getattr(axis, key)), None)
    if beside:
        raise plan.error(("axes", name), f"`{beside}` cannot be combined with `bundles`, whose names are used as they are")
    if is_harness_axis(name):
        raise plan.error(("axes", name), "takes values, not bundles; name the axis of bundles differently")
    first, expected = next((bundle_name, set(bundle)) for bundle_name, bundle in axis.bundles.items())
    for bundle_name, bundle in axis.bundles.items():
        path: KeyPath = ("axes", name, "bundles", bundle_name)
        if not _BUNDLE_NAME.fullmatch(bundle_name):
            raise plan.error(path, "a bundle name may only contain letters, digits and . _ + -, since folders are named by it")
        if not bundle:
            raise plan.error(path, "is empty; list its settings")
        if set(bundle) != expected:
            odd = sorted(set(bundle) ^ expected)[0]
            raise plan.error(path, f"'{odd}' is in only one of '{first}' and '{bundle_name}'; give each bundle the same settings")


def _check_bundled_settings(plan: Plan, used: set[str]) -> None:
    seen: dict[str, str] = {}
    for name, axis in plan.axes.items():
        bundle_name, bundle = next(iter(axis.bundles.items()), ("", {}))
        for key in bundle:
            path: KeyPath = ("axes", name, "bundles", bundle_name, key)
            _check_not_fixed(plan, key, path)
            other = seen.setdefault(key, name)
            if key in plan.axes or other != name:
                raise plan.error(path, f"is varied by axis '{key if key in plan.axes else other}' too; keep one of the two")
            if plan.workload.script is not None:
                _check_placeholder_name(plan, key, path)
                _check_is_used(plan, key, path, used)


def _check_placeholder_name(plan: Plan, name: str, path: KeyPath) -> None:
    if name in (*RESERVED, "seed"):
        raise plan.error(path, f"{{{name}}} is filled by Seatrial; give it another name")
    if name == "steps":
        raise plan.error(path, "belongs to the plan's own key `steps`")
    if not _NAME.fullmatch(name):
        raise plan.error(path, "may only contain letters, digits and _")


def variable_problem(name: str) -> str | None:
    """The problem with the name of an environment variable; None without one."""
    return None if _NAME.fullmatch(name) else "is not a name for an environment variable (letters, digits and _)"


def _check_axis_name(plan: Plan, name: str) -> None:
    if name in RESERVED:
        raise plan.error(("axes", name), f"{{{name}}} is filled by Seatrial; give the axis another name")
    if name.startswith(ENV_AXIS):
        problem = variable_problem(name.removeprefix(ENV_AXIS))
    elif name == NODE_AXIS:
        one_node = (plan.place.nodes or 1) == 1 and NODES_AXIS not in plan.axes
        fits = plan.place.traits.runs_in_jobs and one_node and plan.place.nodelist is None
        problem = None if fits else "is for jobs of one node: `place: {kind: slurm}` without nodes and nodelist"
    elif name == NODES_AXIS:
        fits = plan.place.traits.runs_in_jobs and plan.place.nodelist is None
        problem = None if fits else "is for jobs: `place: {kind: slurm}` without nodelist"
    elif "." in name and name != RANKS_AXIS:
        problem = f"unknown axis; {did_you_mean(name, (RANKS_AXIS, NODES_AXIS, NODE_AXIS, 'env.NAME'))}"
    else:
        problem = None if name == RANKS_AXIS or _NAME.fullmatch(name) else "an axis name may only contain letters, digits and _"
    if len(name) > LONGEST_NAME:
        problem = f"has {len(name):,} characters, more than the {LONGEST_NAME} of an axis; name it shorter"
    if problem:
        raise plan.error(("axes", name), problem)


def _check_axis_values(plan: Plan, name: str, axis: Axis) -> None:
    if not axis.values:
        raise plan.error(("axes", name), "has no values; list at least one, or remove the axis")
    if name in (RANKS_AXIS, NODES_AXIS):
        what = name.removeprefix("place.")
        for position, value in enumerate(axis.values):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise plan.error(("axes", name, "values", position), f"must be a number of {what}, 1 or more, not {format_value(value)}")
    if name == NODE_AXIS:
        for position, value in enumerate(axis.values):
            if not isinstance(value, str) or host_name_problem(value):
                raise plan.error(("axes", name, "values", position), f"must be the name of a node, not {format_value(value)}")
    # A script sees text: 8 and "8" are one value to it. A bundled workload sees typed values.
    identity: Callable[[Any], Hashable] = value_text if plan.workload.script is not None else type_and_value
    seen: set[Hashable] = set()
    for position, value in enumerate(axis.values):
        if mask(name.removeprefix(ENV_AXIS), value_text(value)) != value_text(value):
            raise plan.error(
                ("axes", name, "values", position),
                "looks like a secret, and an axis's values become folder names; put it into the environment and leave it out of the plan",
            )
        if identity(value) in seen:
            raise plan.error(
                ("axes", name, "values", position),
                f"the value {format_value(value)} is listed twice; use `repeats` to run a group several times",
            )
        seen.add(identity(value))


def _check_not_fixed(plan: Plan, name: str, path: KeyPath) -> None:
    fixed = {
        **{key: f"settings.{key}" for key in plan.settings},
        **{f"{ENV_AXIS}{key}": f"env.{key}" for key in plan.env},
        **{f"{ENV_AXIS}{key}": f"workload.env.{key}" for key in plan.workload.env},
        **{f"{ENV_AXIS}{key}": "place.interface" for key in interface_variables(plan.place.interface or "")},
        **({RANKS_AXIS: "place.ranks"} if plan.place.ranks is not None else {}),
        **({NODES_AXIS: "place.nodes"} if plan.place.nodes is not None else {}),
        **({"steps": "steps"} if plan.steps is not None else {}),
    }
    if name in fixed:
        raise plan.error(path, f"is fixed by `{fixed[name]}` and varied as an axis; keep one of the two")


def _check_labels(plan: Plan) -> None:
    seen: dict[str, str] = {}
    for name, axis in plan.axes.items():
        other = seen.setdefault(axis.label, name) if axis.label is not None else name
        if other != name:
            raise plan.error(("axes", name, "label"), f"'{axis.label}' is the label of axis '{other}' too; give each its own")
