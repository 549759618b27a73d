"""`extends`: a plan over the one it builds on, and the chain of files that makes one plan.

Mappings are merged, lists and single values replaced, each axis replaced whole. Lines keep pointing into the file that holds the key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seatrial.errors import PlanError
from seatrial.plan.locate import KeyPath, Locations
from seatrial.plan.plain_text import wrong_character
from seatrial.plan.plan_file import is_plan_file
from seatrial.plan.short_forms import spelled_out
from seatrial.plan.yaml_text import read_plan_file

LONGEST_CHAIN = 20


def read_chain(path: Path, below: tuple[Path, ...] = ()) -> tuple[dict[str, Any], Locations]:
    """The mapping of a plan file with everything it extends merged in, short forms spelled out."""
    document = read_plan_file(path)
    locations = Locations(str(path), document.where)
    mapping = spelled_out(document.value, locations)
    base_name = mapping.pop("extends", None)
    if base_name is None:
        return mapping, locations
    base = _base_path(path, base_name, locations)
    _refuse_cycle((*below, path), base, locations)
    base_mapping, base_locations = read_chain(base, (*below, path))
    return merged(base_mapping, base_locations, mapping, locations), base_locations


def merged(base: dict[str, Any], base_locations: Locations, over: dict[str, Any], over_locations: Locations) -> dict[str, Any]:
    """`over` on top of `base`; `base_locations` comes to hold the locations of both."""
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
    """A plan that names another module or script means that one, not both."""
    ours, theirs = over.get("workload"), base.get("workload")
    if not isinstance(ours, dict) or not isinstance(theirs, dict) or not {"module", "script"} & set(ours):
        return base
    return {**base, "workload": {key: value for key, value in theirs.items() if key not in ("module", "script")}}


def _base_path(path: Path, name: Any, locations: Locations) -> Path:
    if not isinstance(name, str) or not name:
        raise locations.error(("extends",), "must be the path of another plan, relative to this file")
    problem = wrong_character(name)
    if problem:
        raise locations.error(("extends",), problem)
    if "://" in name:
        raise locations.error(("extends",), f"{name} is an address, and plans are read from files only; fetch it and name the file")
    base = path.parent / name
    try:
        found = is_plan_file(base)
    except OSError as error:
        raise locations.error(("extends",), f"{base} cannot be read: {error.strerror}") from error
    if not found:
        what = f"{base} is no file" if base.exists() else f"there is no plan {base}"
        raise locations.error(("extends",), f"{what}; the path is relative to {path.parent}")
    return base


def _refuse_cycle(chain: tuple[Path, ...], base: Path, locations: Locations) -> None:
    seen = [file.resolve() for file in chain]
    if base.resolve() in seen:
        names = " → ".join(str(file) for file in (*chain[seen.index(base.resolve()) :], base))
        raise locations.error(("extends",), f"plans extend each other in a circle: {names}")
    if len(chain) >= LONGEST_CHAIN:
        raise PlanError(f"more than {LONGEST_CHAIN} plans extend one another", file=chain[0], key="extends")
