"""Turns a plan file, or a mapping from a command, into a checked `Plan`.

In: a path and `--set` overrides. Out: a `Plan` in which every key is known, of the right type and consistent with the others, and knows
its file and line. On the way: `extends` is merged, short forms are expanded, and pydantic's errors become PlanErrors that name file,
line, key, what was expected and the nearest known key. `resolve` takes it from there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import stat
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from seatrial.core.errors import PlanError, did_you_mean
from seatrial.plan import workloads
from seatrial.plan.checks import check_plan
from seatrial.plan.schema import SHORT_FORMS, Plan
from seatrial.plan.yaml_text import (
    Document,
    KeyPath,
    Location,
    Locations,
    character_problem,
    dotted_key,
    format_value,
    parse_yaml,
    read_plan_file,
    refuse_unusable_values,
    wrong_type_text,
)
from seatrial.records.caution import Scalar


def load_plan(path: Path, overrides: Sequence[str] = (), *, base: Path | None = None, document: Document | None = None) -> Plan:
    """The plan in `path`, merged over what it extends or over `base`, with `overrides` applied. `document` is what was already read
    of it, since a pipe can be read only once."""
    mapping, locations = read_with_bases(path, base=base, document=document)
    if "stages" in mapping:
        first = next((stage["plan"] for stage in mapping["stages"] or () if isinstance(stage, dict) and "plan" in stage), "a stage's own")
        raise locations.error(("stages",), f"this plan has stages. Name the plan of one stage, {first}")
    for override in overrides:
        mapping = apply_override(mapping, locations, override)
    return _checked(mapping, locations)


def plan_from_mapping(mapping: dict[str, Any], source: str) -> Plan:
    """A plan that was never a file; errors name `source`."""
    if "extends" in mapping:
        raise PlanError("only a plan file can extend another", file=source, key="extends")
    locations = Locations(source)
    return _checked(expand_short_forms(mapping, locations), locations)


def parse_scalars(text: str, source: str) -> list[Scalar]:
    """The values in `8,16` or `[8, 16]`, as `-P bs=8,16` gives them."""
    written = text if text.lstrip().startswith("[") else f"[{text}]"
    try:
        values = parse_yaml(written, source).value
    except PlanError:
        values = None
    if not isinstance(values, list) or any(isinstance(value, (list, dict)) for value in values):
        raise PlanError(f"'{text}' must be comma-separated values, as in 8,16", file=source)
    return values


def _checked(mapping: dict[str, Any], locations: Locations) -> Plan:
    refuse_unusable_values(mapping, locations)
    refuse_unsupported(mapping, locations)
    mapping = _join_lists(mapping)
    try:
        # As JSON, since strict validation of Python values takes only instances for a dataclass.
        plan = Plan.model_validate_json(json.dumps(mapping))
    except ValidationError as error:
        raise plan_error(error, locations) from None
    plan.located(locations)
    check_plan(plan)
    return plan


def _join_lists(mapping: dict[str, Any]) -> dict[str, Any]:
    """The plan with `fast_paths: [front_end, positions]` as `front_end,positions`: settings that the workload declares to be lists, fixed,
    on an axis or in a bundle. What is not a list of plain values is left for the checks."""
    workload = mapping.get("workload")
    module = workload.get("module") if isinstance(workload, dict) else None
    names = workloads.list_settings(workloads.short_name(module)) if isinstance(module, str) else ()
    if not names:
        return mapping

    def settings(values: Any) -> Any:
        return {name: _joined(value) if name in names else value for name, value in values.items()} if isinstance(values, dict) else values

    def axis(name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = dict(value)
        if name in names and isinstance(value.get("values"), list):
            found["values"] = [_joined(one) for one in value["values"]]
        if isinstance(value.get("bundles"), dict):
            found["bundles"] = {bundle: settings(values) for bundle, values in value["bundles"].items()}
        return found

    whole = {**mapping, "settings": settings(mapping.get("settings", {}))}
    if isinstance(mapping.get("axes"), dict):
        whole["axes"] = {name: axis(name, value) for name, value in mapping["axes"].items()}
    return whole


def _joined(value: Any) -> Any:
    """A list of plain values as text; anything else as it is."""
    if not isinstance(value, list) or not value or any(isinstance(one, (list, dict)) or one is None for one in value):
        return value
    return ",".join(map(str, value))


MAPPINGS = ("settings", "launcher", "place", "axes", "lane", "timing", "limits", "env")


def expand_short_forms(mapping: dict[str, Any], locations: Locations) -> dict[str, Any]:
    """The plan without short forms: `launcher: torchrun` is `launcher: {kind: torchrun}`, `bs: [8, 16]` is `bs: {values: [8, 16]}`."""
    long = dict(mapping)
    for key, canonical in SHORT_FORMS.items():
        if isinstance(long.get(key), str):
            long[key] = {canonical: long[key]}
            _move_locations(locations, (key,), canonical)
    for key in MAPPINGS:
        # `axes:` with everything under it commented out is a mapping without keys.
        if key in long and long[key] is None:
            long[key] = {}
    if isinstance(long.get("axes"), dict):
        long["axes"] = {name: _expand_axis(name, value, locations) for name, value in long["axes"].items()}
    if isinstance(long.get("sentinel"), int) and not isinstance(long["sentinel"], bool):
        long["sentinel"] = {"every": long["sentinel"]}
        _move_locations(locations, ("sentinel",), "every")
    if isinstance(long.get("needs"), str):
        long["needs"] = {"campaign": long["needs"]}
        _move_locations(locations, ("needs",), "campaign")
    if isinstance(long.get("criteria"), list):
        long["criteria"] = [_expand_criterion(position, item, locations) for position, item in enumerate(long["criteria"])]
    return long


def _expand_criterion(position: int, value: Any, locations: Locations) -> Any:
    """`baseline: mb8` is `baseline: {group: mb8}`."""
    if not isinstance(value, dict) or not isinstance(value.get("baseline"), str):
        return value
    _move_locations(locations, ("criteria", position, "baseline"), "group")
    return {**value, "baseline": {"group": value["baseline"]}}


def _expand_axis(name: str, value: Any, locations: Locations) -> Any:
    if isinstance(value, dict):
        return value
    _move_locations(locations, ("axes", name), "values")
    return {"values": value}


def _move_locations(locations: Locations, path: KeyPath, canonical: str) -> None:
    """Values at `path` are now one level deeper."""
    for known, where in locations.under(path).items():
        locations.where[(*path, canonical, *known[len(path) :])] = where


LONGEST_CHAIN = 20


def read_with_bases(
    path: Path, below: tuple[Path, ...] = (), base: Path | None = None, document: Document | None = None
) -> tuple[dict[str, Any], Locations]:
    """The mapping of a plan file merged over everything it extends, or over `base` in place of that, short forms expanded."""
    document = document or read_plan_file(path)
    locations = Locations(str(path), document.where)
    mapping = expand_short_forms(document.value, locations)
    needs = mapping.get("needs")
    if isinstance(needs, dict) and isinstance(needs.get("plan"), str):
        # Relative to the file that names it, which another plan may extend.
        mapping["needs"] = {**needs, "plan": str(path.parent / needs["plan"])}
    base_name = mapping.pop("extends", None)
    if base_name is None and base is None:
        return mapping, locations
    base = base or _base_path(path, base_name, locations)
    _refuse_cycle((*below, path), base, locations)
    base_mapping, base_locations = read_with_bases(base, (*below, path))
    return merge_plans(base_mapping, base_locations, mapping, locations), base_locations


def merge_plans(base: dict[str, Any], base_locations: Locations, over: dict[str, Any], over_locations: Locations) -> dict[str, Any]:
    """`over` merged into `base`: mappings are merged, everything else and each axis replaced. `base_locations` gets both's locations."""
    result = _merge(_one_workload(base, over), over, (), base_locations, over_locations)
    base_locations.source = over_locations.source
    base_locations.where.update({(): over_locations.of(())})
    return result


def _merge(base: dict[str, Any], over: dict[str, Any], path: KeyPath, kept: Locations, new: Locations) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        here = (*path, key)
        if isinstance(value, dict) and isinstance(base.get(key), dict) and path != ("axes",):
            result[key] = _merge(base[key], value, here, kept, new)
        else:
            result[key] = value
            kept.forget(here)
            kept.where.update(new.under(here))
    return result


def _one_workload(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A plan that names a module or script replaces the base's."""
    ours, theirs = over.get("workload"), base.get("workload")
    if not isinstance(ours, dict) or not isinstance(theirs, dict) or not {"module", "script"} & set(ours):
        return base
    return {**base, "workload": {key: value for key, value in theirs.items() if key not in ("module", "script")}}


def _base_path(path: Path, name: Any, locations: Locations) -> Path:
    if not isinstance(name, str) or not name:
        raise locations.error(("extends",), "must be the path of another plan, relative to this file")
    problem = character_problem(name)
    if problem:
        raise locations.error(("extends",), problem)
    if "://" in name:
        raise locations.error(("extends",), f"{name} is a URL; download the plan and name the file")
    base = path.parent / name
    try:
        found = stat.S_ISREG(base.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        found = False
    except OSError as error:
        raise locations.error(("extends",), f"{base} cannot be read: {error.strerror}") from error
    if not found:
        what = f"{base} is not a file" if base.exists() else f"there is no plan {base}"
        raise locations.error(("extends",), f"{what}; the path is relative to {path.parent}")
    return base


def _refuse_cycle(chain: tuple[Path, ...], base: Path, locations: Locations) -> None:
    seen = [file.resolve() for file in chain]
    if base.resolve() in seen:
        names = " → ".join(str(file) for file in (*chain[seen.index(base.resolve()) :], base))
        raise locations.error(("extends",), f"circular `extends`: {names}")
    if len(chain) >= LONGEST_CHAIN:
        raise PlanError(f"more than {LONGEST_CHAIN} plans extend one another", file=chain[0], key="extends")


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list, as in [a, b]",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
    "dataclass_type": "a mapping of keys to values",
}
_FITTING = {
    "name": "letters, digits and . _ + -, with a letter or digit first",
    "prefix": "letters, digits and . _ + -, with a letter or digit first",
    "mode": "small letters, digits, _ and -",
    "label": "letters, digits, . and -, with a letter first",
    "window": '"auto", "100:", "100:900" or ":900"',
}
_BOUNDS = {"greater_than_equal": ("at least", "ge"), "greater_than": ("above", "gt"), "less_than_equal": ("at most", "le")}


def plan_error(error: ValidationError, locations: Locations, model: type[BaseModel] = Plan) -> PlanError:
    """The first error in the file, as a PlanError; `model` is what the file holds."""
    errors = error.errors(include_url=False)
    # A missing key is most often misspelt beside it: that one comes first.
    first = min(errors, key=lambda one: (locations.of(one["loc"]).line or 0, one["type"] == "missing"))
    path: KeyPath = first["loc"]
    return locations.error(path, _error_text(first["type"], first.get("input"), first.get("ctx", {}), path, model))


def _error_text(kind: str, value: Any, context: dict[str, Any], path: KeyPath, model: type[BaseModel]) -> str:
    if kind == "plan":
        return str(context["text"])
    if kind == "missing":
        return "`values` is required and missing" if path[-1] == "values" else "is required and missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown key; {unknown_key_hint(path, model)}"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", str(context["expected"]))
        return f"unknown: {format_value(value)}; {did_you_mean(str(value), known)}"
    if kind in _BOUNDS:
        relation, bound = _BOUNDS[kind]
        return f"must be {relation} {context[bound]}, not {format_value(value)}"
    if kind == "string_pattern_mismatch":
        return f"{format_value(value)} does not fit; expected {_FITTING.get(str(path[-1]), context['pattern'])}"
    if kind == "string_too_long":
        return f"longer than {context['max_length']} characters"
    if kind == "finite_number":
        return f"must be a finite number, not {format_value(value)}"
    return wrong_type_text(_EXPECTED.get(kind, "another kind of value"), value)


def unknown_key_hint(path: KeyPath, model: type[BaseModel] = Plan) -> str:
    """Where the key at the end of `path` belongs, else the nearest known key beside it."""
    key = str(path[-1])
    homes = [f"under `{home}`" if home else "at the top of the plan" for home in _homes(model, key, "")]
    return f"it belongs {' or '.join(homes)}" if homes else did_you_mean(key, keys_at(path[:-1], model))


def keys_at(path: KeyPath, model: type[BaseModel] = Plan) -> list[str]:
    """The keys that a plan may have at `path`."""
    here: Any = model
    for part in path:
        keys = _keys(here)
        here = _without_none(keys.get(str(part)) if keys else next(iter(typing.get_args(here)[-1:]), None))
    return list(_keys(here))


def _homes(part: Any, key: str, home: str) -> Iterator[str]:
    """Dotted key of every part of a plan that has `key`."""
    if key in _keys(part):
        yield home
    for name, annotation in _keys(part).items():
        # The part itself, or each one in a list or mapping of them.
        within = (typing.get_args(_without_none(annotation)) or (_without_none(annotation),))[-1]
        yield from _homes(within, key, f"{home}.{name}" if home else name)


def _keys(part: Any) -> dict[str, Any]:
    """The keys of a model or dataclass, each with its type; none for any other type."""
    if not isinstance(part, type):
        return {}
    if issubclass(part, BaseModel):
        return {name: info.annotation for name, info in part.model_fields.items()}
    return typing.get_type_hints(part) if dataclasses.is_dataclass(part) else {}


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(choice for choice in typing.get_args(annotation) if choice is not type(None))
    return annotation


UNSUPPORTED_KEYS: dict[KeyPath, str] = {
    ("price_per_gpu_hour",): "compute it as run duration x your price",
    ("limits", "restarts"): "the same command again resumes what failed",
}
UNSUPPORTED_KINDS: dict[KeyPath, dict[str, str]] = {
    ("place", "kind"): {
        "kubernetes": "use `kind: pernode` within several pods, `kind: local` in one",
    },
}


def refuse_unsupported(mapping: dict[str, Any], locations: Locations) -> None:
    """Raise for the first key or kind that a plan will have and this version ignores: none is dropped silently."""
    for path, instead in UNSUPPORTED_KEYS.items():
        found, _ = _value_at(mapping, path)
        if found:
            raise locations.error(path, f"is not supported yet; leave it out ({instead})")
    for path, kinds in UNSUPPORTED_KINDS.items():
        _, value = _value_at(mapping, path)
        if isinstance(value, str) and value in kinds:
            raise locations.error(path, f"'{value}' is not supported yet; {kinds[value]}")


def _value_at(mapping: dict[str, Any], path: KeyPath) -> tuple[bool, Any]:
    value: Any = mapping
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False, None
        value = value[part]
    return True, value


def apply_override(mapping: dict[str, Any], locations: Locations, override: str) -> dict[str, Any]:
    """`mapping` with `--set KEY=VALUE` applied; errors about that key name the option instead of a file."""
    source = f"--set {override}"
    path, text = _split_override(override, source)
    # What YAML would take for a key (`100:`) is text.
    value = text if text.endswith(":") else parse_yaml(text, source).value
    if len(path) == 2 and path[0] == "axes" and isinstance(value, list):
        # New values keep the axis's label.
        path = (*path, "values")
    changed = _with_value(mapping, path, value, source)
    locations.forget(path)
    for length in range(1, len(path)):
        locations.where.setdefault(path[:length], Location(source))
    locations.where[path] = Location(source)
    return expand_short_forms(changed, locations)


def _split_override(override: str, source: str) -> tuple[KeyPath, str]:
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals or not name or not all(name.split(".")):
        raise PlanError("write KEY=VALUE, as in repeats=3 or axes.micro_batch=[8,16]", file=source)
    first, _, rest = name.partition(".")
    # Names of axes and variables may contain dots: axes.place.ranks is the axis place.ranks.
    if first in ("axes", "lane", "settings", "env") and rest:
        return _axis_path(rest) if first == "axes" else (first, rest), text
    path: KeyPath = tuple(name.split("."))
    if path[0] == "extends":
        raise PlanError("a plan is chosen by its file, not by --set", file=source, key="extends")
    _refuse_unknown(path, source)
    return path, text


def _refuse_unknown(path: KeyPath, source: str) -> None:
    for length in range(1, len(path) + 1):
        if path[: length - 1] == ("workload", "env") or path[:length] in UNSUPPORTED_KEYS:
            return
        known = keys_at(path[: length - 1])
        if path[length - 1] not in known:
            hint = unknown_key_hint(path[:length]) if known else f"'{dotted_key(path[: length - 1])}' is set as a whole"
            raise PlanError(f"unknown key; {hint}", file=source, key=dotted_key(path[:length]))


def _axis_path(rest: str) -> KeyPath:
    for ending in ("values", "label", "bundles"):
        if rest.endswith(f".{ending}"):
            return "axes", rest.removesuffix(f".{ending}"), ending
    return "axes", rest


def _with_value(mapping: dict[str, Any], path: KeyPath, value: Any, source: str) -> dict[str, Any]:
    key = str(path[0])
    if len(path) == 1:
        return {**mapping, key: value}
    below = mapping.get(key) or {}
    if not isinstance(below, dict):
        raise PlanError(f"'{key}' holds one value, not keys", file=source, key=key)
    return {**mapping, key: _with_value(below, path[1:], value, source)}
