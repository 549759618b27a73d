"""Keys and kinds that a plan will have and this version does not act on: refused by name, so that none is taken in silence."""

from __future__ import annotations

from typing import Any

from seatrial.plan.locate import KeyPath, Locations

KEYS: dict[KeyPath, str] = {
    ("price_per_gpu_hour",): "multiply the duration of a run by your price meanwhile",
    ("limits", "restarts"): "the same command again resumes what failed",
}
KINDS: dict[KeyPath, dict[str, str]] = {
    ("place", "kind"): {
        "slurm": "use `kind: pernode` within a job of several nodes, `kind: local` on one",
        "kubernetes": "use `kind: pernode` within several pods, `kind: local` in one",
    },
}


def refuse_unbuilt(mapping: dict[str, Any], locations: Locations) -> None:
    """Raise for the first key or kind of a spelled-out plan that is known but not built yet."""
    for path, meanwhile in KEYS.items():
        found, _ = _at(mapping, path)
        if found:
            raise locations.error(path, f"is a known key that is not built yet; leave it out ({meanwhile})")
    for path, kinds in KINDS.items():
        _, value = _at(mapping, path)
        if isinstance(value, str) and value in kinds:
            raise locations.error(path, f"'{value}' is known but not built yet; {kinds[value]}")


def _at(mapping: dict[str, Any], path: KeyPath) -> tuple[bool, Any]:
    value: Any = mapping
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False, None
        value = value[part]
    return True, value
