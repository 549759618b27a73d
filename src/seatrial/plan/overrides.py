"""`--set a.b=c`: one key of a plan set from the command line, its value read as YAML."""

from __future__ import annotations

from typing import Any

from seatrial.errors import PlanError
from seatrial.plan.locate import KeyPath, Locations, Where, key_text
from seatrial.plan.problems import keys_at, unknown_key_hint
from seatrial.plan.schema import Plan
from seatrial.plan.short_forms import spelled_out
from seatrial.plan.unbuilt import KEYS
from seatrial.plan.yaml_text import parse


def apply_override(mapping: dict[str, Any], locations: Locations, override: str) -> dict[str, Any]:
    """The mapping with `override` on top; errors about that key name the option instead of a file."""
    source = f"--set {override}"
    path, text = _split(override, source)
    value = _value(text, source)
    if len(path) == 2 and path[0] == "axes" and isinstance(value, list):
        # New values for an axis keep the label it has.
        path = (*path, "values")
    changed = _with_value(mapping, path, value, source)
    locations.forget(path)
    for length in range(1, len(path)):
        locations.where.setdefault(path[:length], Where(source))
    locations.where[path] = Where(source)
    return spelled_out(changed, locations)


def _value(text: str, source: str) -> Any:
    """As YAML reads it; what YAML would take for a key (`100:`) is text."""
    return text if text.endswith(":") else parse(text, source).value


def _split(override: str, source: str) -> tuple[KeyPath, str]:
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals or not name or not all(name.split(".")):
        raise PlanError("write KEY=VALUE, as in repeats=3 or axes.micro_batch=[8,16]", file=source)
    first, _, rest = name.partition(".")
    # Names of axes and of variables hold dots of their own: axes.place.ranks is the axis place.ranks.
    if first in ("axes", "lane", "settings", "env") and rest:
        return _axis_path(rest) if first == "axes" else (first, rest), text
    path: KeyPath = tuple(name.split("."))
    if path[0] == "extends":
        raise PlanError("a plan is chosen by its file, not by --set", file=source, key="extends")
    _refuse_unknown(path, source)
    return path, text


def _refuse_unknown(path: KeyPath, source: str) -> None:
    for length in range(1, len(path) + 1):
        if path[: length - 1] == ("workload", "env") or path[:length] in KEYS:
            return
        known = keys_at(Plan, path[: length - 1])
        if path[length - 1] not in known:
            hint = unknown_key_hint(Plan, path[:length]) if known else f"'{key_text(path[: length - 1])}' is set as a whole"
            raise PlanError(f"unknown key; {hint}", file=source, key=key_text(path[:length]))


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
