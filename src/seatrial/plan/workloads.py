"""Bundled workloads, and the check of their settings against the dataclass that owns them.

Only `<workload>/settings.py` is imported, which is standard library only; the trainer is started by name.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from seatrial.core.errors import did_you_mean
from seatrial.plan.yaml_text import format_value, wrong_type_text
from seatrial.records.caution import Scalar

PACKAGE = "seatrial_workloads"
# The folder that workloads share.
SHARED = "common"
_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


class SettingProblem(ValueError):
    """A setting that the workload refuses; `key` is its name, None where the problem is the workload itself."""

    def __init__(self, key: str | None, problem: str):
        self.key = key
        super().__init__(problem)


def available_workloads() -> list[str]:
    """Names of the bundled workloads: the folders with settings."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations or [] if spec else []
    return sorted({found.parent.name for folder in folders for found in Path(folder).glob("*/settings.py")} - {SHARED})


def short_name(module: str) -> str:
    """`tiny_lm` for `tiny_lm` and for `seatrial_workloads.tiny_lm.train`."""
    return module.removeprefix(f"{PACKAGE}.").removesuffix(".train")


def trainer_module(name: str) -> str:
    return f"{PACKAGE}.{name}.train"


def settings_class(name: str) -> type[Any]:
    """The dataclass that owns the settings of workload `name`."""
    if name not in available_workloads():
        hint = "; for a module of your own write `script: PKG.MODULE` and `launcher: {kind: python, args: [-m]}`" if "." in name else ""
        raise SettingProblem(None, f"no workload '{name}'; {did_you_mean(name, available_workloads())}{hint}")
    found: type[Any] = importlib.import_module(f"{PACKAGE}.{name}.settings").Settings
    return found


def sample_size(name: str) -> dict[str, str]:
    """Settings of workload `name` that change the size of a sample, and what that is counted in, as its settings.py declares them."""
    return dict(getattr(importlib.import_module(f"{PACKAGE}.{name}.settings"), "SAMPLE_SIZE", {}))


def list_settings(name: str) -> tuple[str, ...]:
    """Settings of workload `name` that are comma-separated lists, as its settings.py declares them; none of an unknown workload."""
    if name not in available_workloads():
        return ()
    return tuple(getattr(importlib.import_module(f"{PACKAGE}.{name}.settings"), "LISTS", ()))


def follows(name: str) -> dict[str, tuple[str, ...]]:
    """Effective settings of workload `name` that may follow other settings → those, as its settings.py declares them."""
    declared: dict[str, tuple[str, ...]] = getattr(importlib.import_module(f"{PACKAGE}.{name}.settings"), "FOLLOWS", {})
    return {setting: tuple(others) for setting, others in declared.items()}


def alike_by(name: str) -> dict[str, str]:
    """Effective settings of workload `name` → the setting that makes each equal in two groups, as its settings.py declares them."""
    return dict(getattr(importlib.import_module(f"{PACKAGE}.{name}.settings"), "ALIKE_BY", {}))


def hashed_settings(name: str, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Settings as they enter the hash of a run; a workload may keep the form that earlier versions gave them."""
    found = getattr(importlib.import_module(f"{PACKAGE}.{name}.settings"), "hashed_settings", dict)
    return dict(found(settings))


def equalize_settings(
    name: str, groups: Mapping[str, Mapping[str, Scalar]], *, given: Collection[str], compared: bool
) -> tuple[dict[str, dict[str, Scalar]], tuple[str, ...]]:
    """Changes that keep side effects of other settings equal in all groups of a plan (group → setting → value), and a line on each. A
    workload without `EQUALIZE_SETTINGS` has none."""
    module = importlib.import_module(f"{PACKAGE}.{name}.settings")
    if not hasattr(module, "EQUALIZE_SETTINGS"):
        return {}, ()
    try:
        built = {group: module.Settings(**settings) for group, settings in groups.items()}
        equalized = module.EQUALIZE_SETTINGS(built, given=given, compared=compared)
    except ValueError as error:
        raise SettingProblem(
            _key_in(str(error), {key: value for values in groups.values() for key, value in values.items()}), str(error)
        ) from error
    return equalized.changes, equalized.notes


def check_given(name: str, settings: Mapping[str, Scalar], given: Collection[str]) -> None:
    """SettingProblem for settings of a group that the workload refuses unless the plan names them (`check_given` of its settings.py)."""
    module = importlib.import_module(f"{PACKAGE}.{name}.settings")
    if hasattr(module, "check_given"):
        try:
            module.check_given(module.Settings(**settings), given)
        except ValueError as error:
            raise SettingProblem(None, str(error)) from error


def typed_setting(owner: type[Any], key: str, value: Scalar) -> Scalar:
    """`value` as the setting's own type (8 for a float setting is 8.0); SettingProblem when it is unknown or of another type."""
    hints = typing.get_type_hints(owner)
    known = [field.name for field in dataclasses.fields(owner) if field.init]
    if key not in known:
        raise SettingProblem(key, f"unknown setting; {did_you_mean(key, known)}")
    choices = _choices(hints[key])
    if any(_fits(choice, value) for choice in choices):
        return float(value) if float in choices and int not in choices and type(value) is int else value
    names = [_KINDS.get(choice, choice.__name__) if isinstance(choice, type) else format_value(choice) for choice in choices]
    raise SettingProblem(key, wrong_type_text(" or ".join(names), value))


def complete_settings(owner: type[Any], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """All settings with defaults filled, checked by the dataclass itself."""
    try:
        built = owner(**values)
    except (ValueError, TypeError) as error:
        raise SettingProblem(_key_in(str(error), values), str(error)) from error
    return {field.name: getattr(built, field.name) for field in dataclasses.fields(owner)}


def _choices(hint: Any) -> tuple[Any, ...]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return tuple(choice for part in typing.get_args(hint) for choice in _choices(part))
    return typing.get_args(hint) if origin is typing.Literal else (hint,)


def _fits(choice: Any, value: Scalar) -> bool:
    if not isinstance(choice, type):
        return type(choice) is type(value) and choice == value
    if choice is float:
        return type(value) in (int, float)
    return type(value) is choice


def _key_in(text: str, values: Mapping[str, Scalar]) -> str | None:
    """The setting that a message names first."""
    named = [(found.start(), key) for key in values if (found := re.search(rf"\b{re.escape(key)}\b", text))]
    return min(named)[1] if named else None
