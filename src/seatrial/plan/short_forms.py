"""Short forms of a plan spelled out: `launcher: torchrun` is `launcher: {kind: torchrun}`, `bs: [8, 16]` is `bs: {values: [8, 16]}`,
`sentinel: 4` is `sentinel: {every: 4}`, a criterion's `baseline: mb8` is `baseline: {group: mb8}`."""

from __future__ import annotations

from typing import Any

from seatrial.plan.locate import KeyPath, Locations
from seatrial.plan.schema import SHORT_FORMS

MAPPINGS = ("settings", "launcher", "place", "axes", "lane", "timing", "limits", "env")


def spelled_out(mapping: dict[str, Any], locations: Locations) -> dict[str, Any]:
    """The same plan without short forms; the locations of what moved are added."""
    long = dict(mapping)
    for key, stands_for in SHORT_FORMS.items():
        if isinstance(long.get(key), str):
            long[key] = {stands_for: long[key]}
            _move(locations, (key,), stands_for)
    for key in MAPPINGS:
        # `axes:` with everything under it commented out is a mapping without keys.
        if key in long and long[key] is None:
            long[key] = {}
    if isinstance(long.get("axes"), dict):
        long["axes"] = {name: _axis(name, value, locations) for name, value in long["axes"].items()}
    if isinstance(long.get("sentinel"), int) and not isinstance(long["sentinel"], bool):
        long["sentinel"] = {"every": long["sentinel"]}
        _move(locations, ("sentinel",), "every")
    if isinstance(long.get("criteria"), list):
        long["criteria"] = [_criterion(position, item, locations) for position, item in enumerate(long["criteria"])]
    return long


def _criterion(position: int, value: Any, locations: Locations) -> Any:
    """A baseline that is one word is a group."""
    if not isinstance(value, dict) or not isinstance(value.get("baseline"), str):
        return value
    _move(locations, ("criteria", position, "baseline"), "group")
    return {**value, "baseline": {"group": value["baseline"]}}


def _axis(name: str, value: Any, locations: Locations) -> Any:
    if isinstance(value, dict):
        return value
    _move(locations, ("axes", name), "values")
    return {"values": value}


def _move(locations: Locations, path: KeyPath, stands_for: str) -> None:
    """What was written at `path` is now one key deeper."""
    for known, where in locations.under(path).items():
        locations.where[(*path, stands_for, *known[len(path) :])] = where
