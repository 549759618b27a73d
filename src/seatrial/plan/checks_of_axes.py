"""Checks of a plan's axes: names, values, labels, and that each of them reaches the workload."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

from seatrial.errors import did_you_mean
from seatrial.machine.secrets import mask
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


def check_axes(plan: Plan, used: set[str]) -> None:
    """Raise for the first axis that is badly named, empty, doubled, fixed elsewhere, or that nothing uses."""
    for name, axis in plan.axes.items():
        _name(plan, name)
        _values(plan, name, axis)
        _fixed_elsewhere(plan, name)
        if plan.workload.script is not None and not is_harness_axis(name) and name not in used:
            raise plan.locations.error(
                ("axes", name), f"nothing uses it: put {{{name}}} into workload.args where its value belongs, or remove the axis"
            )
    _labels(plan)


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


def _fixed_elsewhere(plan: Plan, name: str) -> None:
    fixed = {
        **{key: f"settings.{key}" for key in plan.settings},
        **{f"{ENV_AXIS}{key}": f"env.{key}" for key in plan.env},
        **{f"{ENV_AXIS}{key}": f"workload.env.{key}" for key in plan.workload.env},
        **({RANKS_AXIS: "place.ranks"} if plan.place.ranks is not None else {}),
        **({"steps": "steps"} if plan.steps is not None else {}),
    }
    if name in fixed:
        raise plan.locations.error(("axes", name), f"is fixed by `{fixed[name]}` and varied as an axis; keep one of the two")


def _labels(plan: Plan) -> None:
    seen: dict[str, str] = {}
    for name, axis in plan.axes.items():
        if axis.label is not None and axis.label in seen:
            raise plan.locations.error(
                ("axes", name, "label"), f"'{axis.label}' is the label of axis '{seen[axis.label]}' too; give each its own"
            )
        if axis.label is not None:
            seen[axis.label] = name
