"""The matrix of a plan: every combination of axis values as a group, the names of groups and runs, their order, and the sentinel.

In: a checked `Plan`. Out: `GroupPoint`s with names (`z0_mb160_nw8_pf4`) and complete settings, run names (`…_r1`), and the order of the
runs. Names are for people and folders; they are never parsed back.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from seatrial.core.errors import PlanError, did_you_mean
from seatrial.plan import workloads
from seatrial.plan.placeholders import names_in, value_text
from seatrial.plan.schema import ENV_AXIS, RANKS_AXIS, Plan, Sentinel, bundled_settings, is_harness_axis, type_and_value
from seatrial.plan.yaml_text import KeyPath, format_value
from seatrial.records.caution import Scalar
from seatrial.records.columns import SWEEP_LABELS
from seatrial.records.plan import SENTINEL
from seatrial.records.signatures.debug_settings import option_name

NO_AXES = "base"
# File names hold 255 bytes; this leaves room for suffixes.
LONGEST_GROUP = 96
_UNSAFE = re.compile(r"[^A-Za-z0-9.+-]+")


# Well-known short forms; for other settings a short form would mislead: `bs` is not a block size.
KNOWN_LABELS = {**SWEEP_LABELS, "batch_size": "bs", "learning_rate": "lr"}


def labels_of(given: Mapping[str, str | None], kept: Mapping[str, str] | None = None) -> dict[str, str]:
    """A label for each axis: the given one, else the one `kept` from before, else a known short form, else its own name; the own name too
    where two would be equal."""
    wanted = {name: label or (kept or {}).get(name) or _label(name) for name, label in given.items()}
    count = Counter(wanted.values())
    return {name: label if given[name] or count[label] == 1 else _UNSAFE.sub("-", name) for name, label in wanted.items()}


def value_names(values: Sequence[Scalar]) -> list[str]:
    """Each value as a safe file name; values that would get the same name get part of their hash, as long as needed to differ."""
    safe = [_UNSAFE.sub("-", value_text(value)) or "empty" for value in values]
    occurrences = _counted(safe)
    digests = [
        "" if occurrences[_compared(text)] == 1 else _sha256(repr(type_and_value(value))) for text, value in zip(safe, values, strict=True)
    ]
    for digits in (4, 8, 16, 64):
        names = [f"{text}-{digest[:digits]}" if digest else text for text, digest in zip(safe, digests, strict=True)]
        if len(_counted(names)) == len(names):
            break
    return names


def group_name(prefix: str, parts: Sequence[tuple[str, str]]) -> str:
    """Prefix, then label and value of each axis; a long name is cut and ends with its hash."""
    start = [prefix.rstrip("_")] if prefix.rstrip("_") else []
    name = "_".join([*start, *(_joined(label, value) for label, value in parts)]) or NO_AXES
    return name if len(name) <= LONGEST_GROUP else f"{name[: LONGEST_GROUP - 9]}-{_sha256(name)[:8]}"


def run_name(group: str, repeat: int) -> str:
    return f"{group}_r{repeat}"


def _counted(texts: Sequence[str]) -> Counter[str]:
    return Counter(map(_compared, texts))


def _compared(text: str) -> str:
    """A value as it follows a label (`a` gets a hyphen, `-a` has one), in lower case for file systems that ignore case."""
    return _joined("label", text).lower()


def _joined(label: str, value: str) -> str:
    """`mb8`, but `precision-bf16` and `top5-3`, where the two would run together; a bundle has no label."""
    if not label:
        return value
    return f"{label}-{value}" if value[0].isalpha() or label[-1].isdigit() else f"{label}{value}"


def _label(name: str) -> str:
    return KNOWN_LABELS.get(name) or _UNSAFE.sub("-", name.removeprefix("env.").removeprefix("place.")).strip("-") or "axis"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


MAX_RUNS = 10_000
MAX_AXES_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class GroupPoint:
    """One point of the matrix."""

    name: str
    axes: dict[str, Scalar]
    settings: dict[str, Scalar]
    """All settings of a bundled workload; of a script, its fixed values and those of the bundles."""
    lane: bool
    sentinel: bool = False
    """Repeated between the others to see the platform drift; not ranked."""


def axis_labels(plan: Plan, kept: Mapping[str, str] | None = None) -> dict[str, str]:
    """Axis → its label in group names; empty for an axis of bundles. `kept`: labels that the campaign's folder has already."""
    labels = labels_of({name: axis.label for name, axis in plan.axes.items() if not axis.bundles}, kept)
    return {name: labels.get(name, "") for name in plan.axes}


def typed_axes(plan: Plan, owner: type | None) -> dict[str, list[Scalar]]:
    """Axis → its values in the type of the setting, or the names of its bundles."""
    return {name: _axis_values(plan, name, owner) for name in plan.axes}


def expand(plan: Plan, ranks: int, kept_labels: Mapping[str, str] | None = None) -> list[GroupPoint]:
    """Every group; the last axis varies fastest. `ranks` is the number of ranks unless an axis sets it."""
    _refuse_too_many(plan)
    owner = settings_owner(plan)
    axes = typed_axes(plan, owner)
    labels = axis_labels(plan, kept_labels)
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
    _check_lane_types(plan, owner)
    _check_names(plan, groups)
    return groups


def equalize_groups(plan: Plan, groups: Sequence[GroupPoint]) -> tuple[list[GroupPoint], tuple[str, ...]]:
    """The groups with settings equalized that must not differ by accident, as the workload declares them; and a line on each. Raises for
    what the workload refuses unless it is named."""
    if plan.workload.module is None:
        return list(groups), ()
    given = {*plan.settings, *plan.axes, *bundled_settings(plan)}
    settings = {group.name: group.settings for group in groups}
    name = workloads.short_name(plan.workload.module)
    try:
        for group in groups:
            workloads.check_given(name, group.settings, given)
        changes, notes = workloads.equalize_settings(name, settings, given=given, compared=_compares(plan))
    except workloads.SettingProblem as problem:
        raise plan.error(("settings", *((problem.key,) if problem.key else ())), str(problem)) from problem
    return [dataclasses.replace(group, settings={**group.settings, **changes.get(group.name, {})}) for group in groups], notes


def _compares(plan: Plan) -> bool:
    """Whether groups are compared with each other or with a baseline."""
    baselines = (part.baseline for part in plan.criteria or ())
    return bool(plan.axes) or "baseline" in plan.model_fields_set or any(baseline is not None for baseline in baselines)


def _named(values: list[Scalar], label: str) -> list[tuple[Scalar, tuple[str, str]]]:
    """Each value of an axis with its (label, text) in the group's name; names of bundles are used as they are."""
    if not label:
        return [(name, (label, str(name))) for name in values]
    return [(value, (label, text)) for value, text in zip(values, value_names(values), strict=True)]


def _refuse_too_many(plan: Plan) -> None:
    sizes = {name: len(axis.choices) for name, axis in plan.axes.items()}
    runs = math.prod(sizes.values()) * plan.repeats
    if runs > MAX_RUNS:
        path: KeyPath = ("axes",) if plan.axes else ("repeats",)
        counted = f"{sizes_text(sizes, plan.repeats)} is {runs_text(runs)} runs"
        raise plan.error(path, f"{counted}, more than {MAX_RUNS:,}; take values or repeats away")


def sizes_text(sizes: Mapping[str, int], repeats: int) -> str:
    """`bs (4 values) × nw (3 values) × 2 repeats`; of many axes only the largest."""
    named = sorted(sizes.items(), key=lambda axis: -axis[1])[:MAX_AXES_NAMED] if len(sizes) > MAX_AXES_NAMED else list(sizes.items())
    parts = [f"{name} ({count:,} {'value' if count == 1 else 'values'})" for name, count in named]
    parts += [f"{len(sizes) - len(named)} more axes"] if len(sizes) > len(named) else []
    return " × ".join([*parts, f"{repeats:,} {'repeat' if repeats == 1 else 'repeats'}"])


def runs_text(runs: int) -> str:
    return f"{runs:,}" if runs < 10**12 else "more than 10^12"


def settings_owner(plan: Plan) -> type | None:
    """The dataclass of a bundled workload's settings, None for a script."""
    if plan.workload.module is None:
        return None
    try:
        return workloads.settings_class(workloads.short_name(plan.workload.module))
    except workloads.SettingProblem as problem:
        raise plan.error(("workload", "module"), str(problem)) from problem


def _axis_values(plan: Plan, name: str, owner: type | None) -> list[Scalar]:
    values: list[Scalar] = plan.axes[name].choices
    if owner is None or is_harness_axis(name) or plan.axes[name].bundles:
        return values
    checked: list[Scalar] = []
    for position, value in enumerate(values):
        path: KeyPath = ("axes", name, "values", position)
        checked.append(_typed(plan, owner, name, value, path))
        if type_and_value(checked[-1]) in map(type_and_value, checked[:-1]):
            raise plan.error(path, f"the value {format_value(value)} is listed twice: the setting is a float")
    return checked


Bundles = Mapping[str, Mapping[Scalar, Mapping[str, Scalar]]]
"""Axis → name of a bundle → the settings in it."""


def _typed_bundles(plan: Plan, owner: type | None) -> Bundles:
    def typed(axis: str, name: str, bundle: dict[str, Scalar]) -> dict[str, Scalar]:
        if owner is None:
            return bundle
        return {key: _typed(plan, owner, key, value, ("axes", axis, "bundles", name, key)) for key, value in bundle.items()}

    return {
        name: {key: typed(name, key, bundle) for key, bundle in axis.bundles.items()} for name, axis in plan.axes.items() if axis.bundles
    }


def _typed(plan: Plan, owner: type, name: str, value: Scalar, path: KeyPath) -> Scalar:
    try:
        return workloads.typed_setting(owner, name, value)
    except workloads.SettingProblem as problem:
        # The name is wrong, not the value that was checked.
        at = path[:2] if "unknown setting" in str(problem) and "bundles" not in path else path
        raise plan.error(at, str(problem)) from problem


def _fixed_settings(plan: Plan, owner: type | None) -> dict[str, Scalar]:
    if owner is None:
        return dict(plan.settings)
    fixed = {name: _typed(plan, owner, name, value, ("settings", name)) for name, value in plan.settings.items()}
    if plan.steps is not None:
        if fixed.get("steps", plan.steps) != plan.steps:
            raise plan.error(("steps",), f"{plan.steps} here and {fixed['steps']} in settings; keep one of the two")
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
        return workloads.complete_settings(owner, {**fixed, **varied})
    except workloads.SettingProblem as problem:
        raise _setting_error(plan, problem, varied) from problem


def _setting_error(plan: Plan, problem: workloads.SettingProblem, varied: Mapping[str, Scalar]) -> PlanError:
    at = f" (with {', '.join(f'{name}={format_value(value)}' for name, value in varied.items())})" if varied else ""
    if problem.key in varied:
        return plan.error(("axes", str(problem.key)), f"{problem}{at}")
    path: KeyPath = (
        ("steps",) if problem.key == "steps" and plan.steps is not None else ("settings", *((problem.key,) if problem.key else ()))
    )
    return plan.error(path, f"{problem}{at}")


def _in_lane(plan: Plan, values: Mapping[str, Scalar]) -> bool:
    variables = {f"{ENV_AXIS}{name}": value for name, value in {**plan.env, **plan.workload.env}.items()}
    known: dict[str, Scalar] = {**variables, **values}
    for name, wanted in plan.lane.items():
        if name not in known:
            raise plan.error(("lane", name), f"is neither an axis nor a setting here; {did_you_mean(name, known)}")
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if not any(is_same(known[name], value) for value in allowed):
            return False
    return True


def _check_lane_types(plan: Plan, owner: type | None) -> None:
    """A value of another type than the setting's would put every group off the lane."""
    settings = {field.name for field in dataclasses.fields(owner)} if owner is not None else set()
    for name, wanted in plan.lane.items():
        for value in wanted if isinstance(wanted, list) else [wanted]:
            if owner is not None and name in settings:
                _typed(plan, owner, name, value, ("lane", name))


def is_same(one: Scalar, other: Scalar) -> bool:
    """Equal; true and 1 differ, 8 and 8.0 do not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _check_names(plan: Plan, groups: list[GroupPoint]) -> None:
    """Two groups of one name would share a folder; names of bundles may differ in case only, or run together: `a` `b_c` and `a_b` `c`."""
    seen: dict[str, GroupPoint] = {}
    for group in groups:
        other = seen.setdefault(group.name.lower(), group)
        if other is not group:
            axis = next((name for name in plan.axes if not is_same(group.axes[name], other.axes[name])), "")
            raise plan.error(("axes", axis), f"two of its values would both be named {group.name}; rename one")


def varied_names(plan: Plan) -> tuple[str, ...]:
    """Settings, variables (without `env.`) and script options that the axes set, sorted. A debug switch among them is the difference
    under test, not a reason to refuse a comparison."""
    placeholders = {name for name, axis in plan.axes.items() if not axis.bundles} | set(bundled_settings(plan))
    names = {name.removeprefix(ENV_AXIS) for name in placeholders if name != RANKS_AXIS}
    variables = {name for name, text in {**plan.env, **plan.workload.env}.items() if placeholders & set(names_in(text))}
    return tuple(sorted({*names, *variables, *_varied_options(plan, placeholders)}))


def _varied_options(plan: Plan, placeholders: set[str]) -> Iterator[str]:
    """Script options that an axis fills in: the value, or the whole option."""
    for before, argument in itertools.pairwise(("", *plan.workload.args)):
        name, equals, _ = argument.partition("=")
        filled = placeholders & set(names_in(argument))
        if filled and equals and not names_in(name):
            yield option_name(name)
        elif filled and before.startswith("--") and "=" not in before:
            yield option_name(before)
        yield from (
            option_name(value.partition("=")[0]) for name in filled for value in _placeholder_values(plan, name) if value.startswith("--")
        )


def _placeholder_values(plan: Plan, name: str) -> list[str]:
    """Every value of a placeholder, as the script gets it."""
    bundles = (bundle for axis in plan.axes.values() for bundle in axis.bundles.values())
    values = plan.axes[name].values if name in plan.axes else [bundle[name] for bundle in bundles if name in bundle]
    return [value_text(value) for value in values]


Group = TypeVar("Group")


def run_order(groups: Sequence[Group], repeats: int, order: str, seed: int) -> list[tuple[Group, int]]:
    """(group, repeat) in the order of the runs: shuffled rounds, `rounds` as written, or group after group (`nested`)."""
    if order == "nested":
        return [(group, repeat) for group in groups for repeat in range(1, repeats + 1)]
    if order == "rounds":
        return [(group, repeat) for repeat in range(1, repeats + 1) for group in groups]
    return [(group, repeat) for repeat in range(1, repeats + 1) for group in shuffled_round(groups, repeat, seed)]


def shuffled_round(groups: Sequence[Group], repeat: int, seed: int) -> list[Group]:
    """All groups once, shuffled for this round alone, so that more repeats do not change earlier rounds."""
    shuffled = list(groups)
    Random(f"{seed}:{repeat}").shuffle(shuffled)
    return shuffled


Run = TypeVar("Run")


def sentinel_group(plan: Plan, groups: Sequence[GroupPoint]) -> GroupPoint | None:
    """The group that the sentinel repeats; None without a sentinel."""
    if plan.sentinel is None:
        return None
    if any(group.name.lower() == SENTINEL for group in groups):
        raise plan.error(("sentinel",), f"a group of the plan is called {SENTINEL}, like the sentinel's; give the plan a prefix")
    return _choose_sentinel(plan, plan.sentinel, groups)


def as_sentinel(group: GroupPoint) -> GroupPoint:
    """The same group under the sentinel's name, off the lane."""
    return dataclasses.replace(group, name=SENTINEL, lane=False, sentinel=True)


def insert_sentinel_runs(runs: Sequence[Run], every: int, watch: Callable[[int], Run]) -> Iterator[Run]:
    """The runs with a sentinel run first, after every `every` runs, and last; `watch(n)` builds the n-th."""
    yield watch(1)
    for count, run in enumerate(runs, start=1):
        yield run
        if count % every == 0 or count == len(runs):
            yield watch(1 + -(-count // every))


def _choose_sentinel(plan: Plan, sentinel: Sentinel, groups: Sequence[GroupPoint]) -> GroupPoint:
    if sentinel.group is not None and sentinel.settings:
        raise plan.error(("sentinel", "settings"), "and `group` both say which group it is; keep one of the two")
    if sentinel.group is not None:
        return _sentinel_by_name(plan, sentinel.group, groups)
    for axis in sentinel.settings:
        _check_sentinel_value(plan, sentinel, axis, groups)
    fitting = (group for group in groups if all(is_same(group.axes[axis], value) for axis, value in sentinel.settings.items()))
    return next(fitting)


def _sentinel_by_name(plan: Plan, name: str, groups: Sequence[GroupPoint]) -> GroupPoint:
    found = next((group for group in groups if group.name == name), None)
    if found is None:
        hint = did_you_mean(name, (group.name for group in groups))
        raise plan.error(("sentinel", "group"), f"no group of this plan is called '{name}'; {hint}")
    return found


def _check_sentinel_value(plan: Plan, sentinel: Sentinel, axis: str, groups: Sequence[GroupPoint]) -> None:
    path: KeyPath = ("sentinel", "settings", axis)
    if axis not in plan.axes:
        raise plan.error(path, f"is not an axis of this plan; {did_you_mean(axis, plan.axes)}")
    if not any(is_same(group.axes[axis], sentinel.settings[axis]) for group in groups):
        known = ", ".join(dict.fromkeys(format_value(group.axes[axis]) for group in groups))
        raise plan.error(path, f"{format_value(sentinel.settings[axis])} is not a value of the axis; it has {known}")
