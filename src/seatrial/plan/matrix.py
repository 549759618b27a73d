"""The matrix of a plan: every combination of its axes' values, as groups with names and complete settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.errors import PlanError, did_you_mean
from seatrial.plan import bundled
from seatrial.plan.checks_of_axes import ENV_AXIS, RANKS_AXIS, is_harness_axis
from seatrial.plan.locate import KeyPath
from seatrial.plan.names import group_name, labels_of, value_names
from seatrial.plan.problems import shown
from seatrial.plan.schema import Plan
from seatrial.plan.values import type_and_value
from seatrial.records.run_spec import Scalar

MOST_RUNS = 10_000
MOST_AXES_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class GroupPoint:
    """One point of the matrix."""

    name: str
    axes: dict[str, Scalar]
    settings: dict[str, Scalar]
    """All settings of a bundled workload; of a script, its fixed values and those of the bundles."""
    lane: bool
    sentinel: bool = False
    """Run in between to watch the platform, and ranked nowhere."""


def axis_labels(plan: Plan) -> dict[str, str]:
    """Axis name to the word that stands for it in group names; a bundle's own name needs none before it."""
    labels = labels_of({name: axis.label for name, axis in plan.axes.items() if not axis.bundles})
    return {name: labels.get(name, "") for name in plan.axes}


def typed_axes(plan: Plan, owner: type | None) -> dict[str, list[Scalar]]:
    """Each axis's values, as the type its setting has; the names of bundles."""
    return {name: _axis_values(plan, name, owner) for name in plan.axes}


def expand(plan: Plan, ranks: int) -> list[GroupPoint]:
    """Every group, in the order the axes are written: the last axis varies fastest. `ranks` is their number where no axis says it."""
    _refuse_too_many(plan)
    owner = settings_owner(plan)
    axes = typed_axes(plan, owner)
    labels = axis_labels(plan)
    named = [_named(values, labels[axis]) for axis, values in axes.items()]
    fixed = _fixed_settings(plan, owner)
    bundles = _typed_bundles(plan, owner)
    groups = []
    for combination in itertools.product(*named):
        point = dict(zip(axes, (value for value, _ in combination), strict=True))
        settings = _settings_at(plan, owner, fixed, point, bundles)
        name = group_name(plan.prefix, [part for _, part in combination])
        lane = _in_lane(plan, {RANKS_AXIS: ranks, **settings, **point})
        groups.append(GroupPoint(name=name, axes=point, settings=settings, lane=lane))
    _check_lane(plan, groups)
    _check_names(plan, groups)
    return groups


def _named(values: list[Scalar], label: str) -> list[tuple[Scalar, tuple[str, str]]]:
    """Each value of an axis with its part of the group's name; the names of bundles, which have no label, stand as they are."""
    if not label:
        return [(name, (label, str(name))) for name in values]
    return [(value, (label, text)) for value, text in zip(values, value_names(values), strict=True)]


def _refuse_too_many(plan: Plan) -> None:
    sizes = {name: len(axis.choices) for name, axis in plan.axes.items()}
    runs = math.prod(sizes.values()) * plan.repeats
    if runs > MOST_RUNS:
        path: KeyPath = ("axes",) if plan.axes else ("repeats",)
        counted = f"{sizes_text(sizes, plan.repeats)} is {runs_text(runs)} runs"
        raise plan.locations.error(path, f"{counted}, more than {MOST_RUNS:,}; take values or repeats away")


def sizes_text(sizes: Mapping[str, int], repeats: int) -> str:
    """`bs (4 values) × nw (3 values) × 2 repeats`; of many axes the largest."""
    named = sorted(sizes.items(), key=lambda axis: -axis[1])[:MOST_AXES_NAMED] if len(sizes) > MOST_AXES_NAMED else list(sizes.items())
    words = [f"{name} ({count:,} {'value' if count == 1 else 'values'})" for name, count in named]
    words += [f"{len(sizes) - len(named)} more axes"] if len(sizes) > len(named) else []
    return " × ".join([*words, f"{repeats:,} {'repeat' if repeats == 1 else 'repeats'}"])


def runs_text(runs: int) -> str:
    """A number of runs, in words where nobody would count its digits."""
    return f"{runs:,}" if runs < 10**12 else "more than a million million"


def settings_owner(plan: Plan) -> type | None:
    """The dataclass of a bundled workload's settings, None for a script."""
    if plan.workload.module is None:
        return None
    try:
        return bundled.settings_class(bundled.short_name(plan.workload.module))
    except bundled.SettingProblem as problem:
        raise plan.locations.error(("workload", "module"), str(problem)) from problem


def _axis_values(plan: Plan, name: str, owner: type | None) -> list[Scalar]:
    values: list[Scalar] = plan.axes[name].choices
    if owner is None or is_harness_axis(name) or plan.axes[name].bundles:
        return values
    checked: list[Scalar] = []
    for position, value in enumerate(values):
        path: KeyPath = ("axes", name, "values", position)
        checked.append(_typed(plan, owner, name, value, path))
        if type_and_value(checked[-1]) in map(type_and_value, checked[:-1]):
            raise plan.locations.error(path, f"the value {shown(value)} is there twice: the setting is a number with a point")
    return checked


Bundles = Mapping[str, Mapping[Scalar, Mapping[str, Scalar]]]
"""Axis → name of a bundle → the settings in it."""


def _typed_bundles(plan: Plan, owner: type | None) -> Bundles:
    return {
        axis: {name: _typed_bundle(plan, owner, axis, name) for name in asked.bundles} for axis, asked in plan.axes.items() if asked.bundles
    }


def _typed_bundle(plan: Plan, owner: type | None, axis: str, name: str) -> dict[str, Scalar]:
    bundle: dict[str, Scalar] = plan.axes[axis].bundles[name]
    if owner is None:
        return bundle
    return {key: _typed(plan, owner, key, value, ("axes", axis, "bundles", name, key)) for key, value in bundle.items()}


def _typed(plan: Plan, owner: type, name: str, value: Scalar, path: KeyPath) -> Scalar:
    try:
        return bundled.typed(owner, name, value)
    except bundled.SettingProblem as problem:
        # The name is at fault, not the one of its values that was looked at.
        at = path[:2] if "unknown setting" in str(problem) and "bundles" not in path else path
        raise plan.locations.error(at, str(problem)) from problem


def _fixed_settings(plan: Plan, owner: type | None) -> dict[str, Scalar]:
    if owner is None:
        return dict(plan.settings)
    fixed = {name: _typed(plan, owner, name, value, ("settings", name)) for name, value in plan.settings.items()}
    if plan.steps is not None:
        if fixed.get("steps", plan.steps) != plan.steps:
            raise plan.locations.error(("steps",), f"{plan.steps} here and {fixed['steps']} in settings; keep one of the two")
        fixed["steps"] = _typed(plan, owner, "steps", plan.steps, ("steps",))
    return fixed


def _settings_at(
    plan: Plan, owner: type | None, fixed: Mapping[str, Scalar], point: Mapping[str, Scalar], bundles: Bundles
) -> dict[str, Scalar]:
    together = {key: value for axis, named in bundles.items() for key, value in named[point[axis]].items()}
    if owner is None:
        return {**fixed, **together}
    varied = {**{name: value for name, value in point.items() if not is_harness_axis(name) and name not in bundles}, **together}
    try:
        return bundled.complete(owner, {**fixed, **varied})
    except bundled.SettingProblem as problem:
        raise _setting_error(plan, problem, varied) from problem


def _setting_error(plan: Plan, problem: bundled.SettingProblem, varied: Mapping[str, Scalar]) -> PlanError:
    at = f" (with {', '.join(f'{name}={shown(value)}' for name, value in varied.items())})" if varied else ""
    if problem.key in varied:
        return plan.locations.error(("axes", str(problem.key)), f"{problem}{at}")
    path: KeyPath = (
        ("steps",) if problem.key == "steps" and plan.steps is not None else ("settings", *((problem.key,) if problem.key else ()))
    )
    return plan.locations.error(path, f"{problem}{at}")


def _in_lane(plan: Plan, values: Mapping[str, Scalar]) -> bool:
    known = {**_harness_values(plan), **values}
    for name, wanted in plan.lane.items():
        if name not in known:
            raise plan.locations.error(("lane", name), f"is neither an axis nor a setting here; {did_you_mean(name, known)}")
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if not any(is_same(known[name], value) for value in allowed):
            return False
    return True


def _harness_values(plan: Plan) -> dict[str, Scalar]:
    return {f"{ENV_AXIS}{name}": value for name, value in {**plan.env, **plan.workload.env}.items()}


def is_same(one: Scalar, other: Scalar) -> bool:
    """Equal, with true and 1 told apart and 8 and 8.0 not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _check_lane(plan: Plan, groups: list[GroupPoint]) -> None:
    if plan.lane and not any(group.lane for group in groups):
        wanted = ", ".join(f"{name} = {shown(value)}" for name, value in plan.lane.items())
        raise plan.locations.error(("lane",), f"no group is on the main lane ({wanted}); name values that the plan runs")


def _check_names(plan: Plan, groups: list[GroupPoint]) -> None:
    """Two groups of one name would share a folder. Names are made so that this does not happen; results are too dear to count on it."""
    seen: dict[str, GroupPoint] = {}
    for group in groups:
        other = seen.setdefault(group.name.lower(), group)
        if other is not group:
            axis = next((name for name in plan.axes if not is_same(group.axes[name], other.axes[name])), "")
            raise plan.locations.error(("axes", axis), f"two of its values would both be called {group.name}; give the axis another label")
