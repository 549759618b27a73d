"""Checks of a plan's axes: names, values, labels, and that each of them reaches the workload."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

from seatrial.errors import did_you_mean
from seatrial.machine.nic_names import interface_variables
from seatrial.machine.secrets import mask
from seatrial.plan.locate import KeyPath
from seatrial.plan.placeholders import value_text
from seatrial.plan.problems import shown
from seatrial.plan.schema import Axis, Plan
from seatrial.plan.values import type_and_value

RESERVED = ("run", "group", "repeat")
RANKS_AXIS = "place.ranks"
ENV_AXIS = "env."
# It becomes a column of every table.
LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BUNDLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


def check_axes(plan: Plan, used: set[str]) -> None:
    """Raise for the first axis that is badly named, empty, doubled, fixed elsewhere, or that nothing uses."""
    for name, axis in plan.axes.items():
        _name(plan, name)
        if axis.bundles:
            _bundles(plan, name, axis)
        else:
            _values(plan, name, axis)
        _fixed_elsewhere(plan, name, ("axes", name))
        if plan.workload.script is not None and not is_harness_axis(name) and not axis.bundles:
            _is_used(plan, name, ("axes", name), used)
    _labels(plan)
    _settings_of_bundles(plan, used)


def check_script_settings(plan: Plan, used: set[str]) -> None:
    """Raise for the first fixed value of a script that is badly named, or that nothing uses."""
    for name in plan.settings if plan.workload.script is not None else ():
        _placeholder_name(plan, name, ("settings", name))
        _is_used(plan, name, ("settings", name), used)


def members(plan: Plan) -> dict[str, str]:
    """Every setting that stands in a bundle, and its axis."""
    return {key: name for name, axis in plan.axes.items() for bundle in axis.bundles.values() for key in bundle}


def _is_used(plan: Plan, name: str, path: KeyPath, used: set[str]) -> None:
    if name not in used:
        what = "the axis" if path == ("axes", name) else "it"
        raise plan.locations.error(path, f"nothing uses it: put {{{name}}} into workload.args where its value belongs, or remove {what}")


def _bundles(plan: Plan, name: str, axis: Axis) -> None:
    """One axis's bundles: whole, alike, and nothing else beside them."""
    beside = next((key for key in ("values", "label") if getattr(axis, key)), None)
    if beside:
        raise plan.locations.error(("axes", name), f"`{beside}` has no meaning beside `bundles`, whose names stand for themselves")
    if is_harness_axis(name):
        raise plan.locations.error(("axes", name), "takes values, not bundles; name the axis of bundles with a word of your own")
    first, expected = next((word, set(bundle)) for word, bundle in axis.bundles.items())
    for word, bundle in axis.bundles.items():
        path: KeyPath = ("axes", name, "bundles", word)
        if not _BUNDLE_NAME.fullmatch(word):
            raise plan.locations.error(path, "a bundle is named with letters, digits and . _ + -, as it stands in names of folders")
        if not bundle:
            raise plan.locations.error(path, "is empty; name the settings it stands for")
        if set(bundle) != expected:
            odd = sorted(set(bundle) ^ expected)[0]
            raise plan.locations.error(path, f"'{odd}' stands in only one of '{first}' and '{word}'; give each bundle the same settings")


def _settings_of_bundles(plan: Plan, used: set[str]) -> None:
    seen: dict[str, str] = {}
    for name, axis in plan.axes.items():
        word, bundle = next(iter(axis.bundles.items()), ("", {}))
        for key in bundle:
            path: KeyPath = ("axes", name, "bundles", word, key)
            _fixed_elsewhere(plan, key, path)
            other = seen.setdefault(key, name)
            if key in plan.axes or other != name:
                raise plan.locations.error(path, f"is varied by axis '{key if key in plan.axes else other}' too; keep one of the two")
            if plan.workload.script is not None:
                _placeholder_name(plan, key, path)
                _is_used(plan, key, path, used)


def _placeholder_name(plan: Plan, name: str, path: KeyPath) -> None:
    if name in (*RESERVED, "seed"):
        raise plan.locations.error(path, f"{{{name}}} is filled by Seatrial; give it another name")
    if name == "steps":
        raise plan.locations.error(path, "belongs to the plan's own key `steps`")
    if not _NAME.fullmatch(name):
        raise plan.locations.error(path, "is named with letters, digits and _")


def is_harness_axis(name: str) -> bool:
    """An axis that Seatrial applies itself, rather than the workload."""
    return name == RANKS_AXIS or name.startswith(ENV_AXIS)


def variable_problem(name: str) -> str | None:
    """What is wrong with the name of an environment variable."""
    return None if _NAME.fullmatch(name) else "is not a name for an environment variable (letters, digits and _)"


def _name(plan: Plan, name: str) -> None:
    if name in RESERVED:
        raise plan.locations.error(("axes", name), f"{{{name}}} is filled by Seatrial; give the axis another name")
    if name.startswith(ENV_AXIS):
        problem = variable_problem(name.removeprefix(ENV_AXIS))
    elif "." in name and name != RANKS_AXIS:
        problem = f"unknown axis; {did_you_mean(name, (RANKS_AXIS, 'env.NAME'))}"
    else:
        problem = None if name == RANKS_AXIS or _NAME.fullmatch(name) else "an axis is named with letters, digits and _"
    if len(name) > LONGEST_NAME:
        problem = f"has {len(name):,} characters, more than the {LONGEST_NAME} of an axis; name it shorter"
    if problem:
        raise plan.locations.error(("axes", name), problem)


def _values(plan: Plan, name: str, axis: Axis) -> None:
    if not axis.values:
        raise plan.locations.error(("axes", name), "has no values; list at least one, or remove the axis")
    if name == RANKS_AXIS:
        for position, value in enumerate(axis.values):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise plan.locations.error(("axes", name, "values", position), f"must be a number of ranks, 1 or more, not {shown(value)}")
    # A script sees text: 8 and "8" are one value to it. A bundled workload sees typed values.
    identity: Callable[[Any], Hashable] = value_text if plan.workload.script is not None else type_and_value
    seen: dict[Hashable, int] = {}
    for position, value in enumerate(axis.values):
        if mask(name.removeprefix(ENV_AXIS), value_text(value)) != value_text(value):
            raise plan.locations.error(
                ("axes", name, "values", position),
                "looks like a secret, and an axis's values become folder names; put it into the environment and leave it out of the plan",
            )
        if identity(value) in seen:
            raise plan.locations.error(
                ("axes", name, "values", position), f"the value {shown(value)} is there twice; repeats are asked for with `repeats`"
            )
        seen[identity(value)] = position


def _fixed_elsewhere(plan: Plan, name: str, path: KeyPath) -> None:
    fixed = {
        **{key: f"settings.{key}" for key in plan.settings},
        **{f"{ENV_AXIS}{key}": f"env.{key}" for key in plan.env},
        **{f"{ENV_AXIS}{key}": f"workload.env.{key}" for key in plan.workload.env},
        **{f"{ENV_AXIS}{key}": "place.interface" for key in interface_variables(plan.place.interface or "")},
        **({RANKS_AXIS: "place.ranks"} if plan.place.ranks is not None else {}),
        **({"steps": "steps"} if plan.steps is not None else {}),
    }
    if name in fixed:
        raise plan.locations.error(path, f"is fixed by `{fixed[name]}` and varied as an axis; keep one of the two")


def _labels(plan: Plan) -> None:
    seen: dict[str, str] = {}
    for name, axis in plan.axes.items():
        if axis.label is not None and axis.label in seen:
            raise plan.locations.error(
                ("axes", name, "label"), f"'{axis.label}' is the label of axis '{seen[axis.label]}' too; give each its own"
            )
        if axis.label is not None:
            seen[axis.label] = name
