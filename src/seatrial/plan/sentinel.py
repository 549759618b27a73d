"""`sentinel`: which group watches the platform, and where its runs stand among the others.

In: a `Plan`, its groups, and its runs in order. Out: the group as a point of its own name, off the lane, and the runs with one of it
first, one after every so many, and one last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from seatrial.errors import did_you_mean
from seatrial.plan.locate import KeyPath
from seatrial.plan.matrix import GroupPoint, is_same
from seatrial.plan.problems import shown
from seatrial.plan.schema import Plan, Sentinel
from seatrial.records.campaign_plan import SENTINEL

Run = TypeVar("Run")


def watched_group(plan: Plan, groups: Sequence[GroupPoint]) -> GroupPoint | None:
    """The group of the matrix that is run again in between; None where the plan has no sentinel."""
    if plan.sentinel is None:
        return None
    if any(group.name.lower() == SENTINEL for group in groups):
        raise plan.locations.error(("sentinel",), f"a group of the plan is called {SENTINEL}, as its runs would be; give the plan a prefix")
    return _chosen(plan, plan.sentinel, groups)


def as_sentinel(group: GroupPoint) -> GroupPoint:
    """The same work under a name of its own, ranked nowhere."""
    return dataclasses.replace(group, name=SENTINEL, lane=False, sentinel=True)


def in_between(runs: Sequence[Run], every: int, watch: Callable[[int], Run]) -> Iterator[Run]:
    """The runs in their order; `watch` makes the sentinel's run of a number, from 1 on."""
    yield watch(1)
    for count, run in enumerate(runs, start=1):
        yield run
        if count % every == 0 or count == len(runs):
            yield watch(1 + -(-count // every))


def _chosen(plan: Plan, asked: Sentinel, groups: Sequence[GroupPoint]) -> GroupPoint:
    if asked.group is not None and asked.settings:
        raise plan.locations.error(("sentinel", "settings"), "and `group` both say which group it is; keep one of the two")
    if asked.group is not None:
        return _by_name(plan, asked.group, groups)
    for axis in asked.settings:
        _check_value(plan, asked, axis, groups)
    fitting = (group for group in groups if all(is_same(group.axes[axis], value) for axis, value in asked.settings.items()))
    return next(fitting)


def _by_name(plan: Plan, name: str, groups: Sequence[GroupPoint]) -> GroupPoint:
    found = next((group for group in groups if group.name == name), None)
    if found is None:
        hint = did_you_mean(name, (group.name for group in groups))
        raise plan.locations.error(("sentinel", "group"), f"no group of this plan is called '{name}'; {hint}")
    return found


def _check_value(plan: Plan, asked: Sentinel, axis: str, groups: Sequence[GroupPoint]) -> None:
    path: KeyPath = ("sentinel", "settings", axis)
    if axis not in plan.axes:
        raise plan.locations.error(path, f"is no axis of this plan; {did_you_mean(axis, plan.axes)}")
    if not any(is_same(group.axes[axis], asked.settings[axis]) for group in groups):
        known = ", ".join(dict.fromkeys(shown(group.axes[axis]) for group in groups))
        raise plan.locations.error(path, f"{shown(asked.settings[axis])} is no value of the axis; it has {known}")
