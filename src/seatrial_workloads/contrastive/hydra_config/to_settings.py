"""From a composed tree to Settings: every name and value is checked, and errors name the key as typed.

Hydra accepts `++train.typo=1` and unknown names in config files; here every name is looked up.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.core.errors import nearest
from seatrial.records.eta import OFF
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.settings import describe_type, strip_optional
from seatrial_workloads.contrastive.hydra_config.keys import (
    BF16,
    BOUNDARIES,
    DEEPSPEED,
    ETA_MODE,
    ETA_ON,
    FP16,
    GROUPS,
    KEYS,
    NUMBERS,
    PRECISION,
    SAVE_LATEST,
    STEPS_PER_PRINT,
    TRAIN,
    USE_BUCKETS,
    Key,
    is_unsupported,
    source_of,
)
from seatrial_workloads.contrastive.settings import Settings

MISSING = "???"
"""Hydra's mark for a required value."""


class ConfigurationError(Exception):
    """The requested configuration is invalid; a one-line message for the user."""


def checked_values(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every key, converted to its type."""
    found = dict(_leaves(tree))
    for name in found:
        check_name(name)
    for name in KEYS:
        if name not in found:
            raise ConfigurationError(f"{name} was removed, but the trainer needs it: set a value")
    return {name: _checked(name, KEYS[name], found[name]) for name in KEYS}


def check_name(name: str) -> None:
    """Raise for an unknown key, suggesting the nearest."""
    if name in KEYS:
        return
    if name in GROUPS:
        raise ConfigurationError(f"{name} is a group of keys and takes no value: {', '.join(_keys_in(name))}")
    inside = name.removeprefix(f"{DEEPSPEED}.")
    if inside != name and is_unsupported(inside):
        raise ConfigurationError(f"{name} is a DeepSpeed key that this trainer does not support: remove it")
    raise ConfigurationError(f"unknown key '{name}': {_suggest_key(name)}")


def _suggest_key(name: str) -> str:
    parent, _, last = name.rpartition(".")
    known = [key.removeprefix(f"{parent}.") for key in _keys_in(parent)] if parent in GROUPS else []
    near = nearest(last, known)
    # The right name in the wrong group.
    elsewhere = [key for key in KEYS if key.rpartition(".")[2] == last]
    guess = f"{parent}.{near}" if near else nearest(name, elsewhere, cutoff=0) if elsewhere else None
    if guess is None and not known:
        guess = nearest(name, list(KEYS), cutoff=0.75)
    if guess:
        return f"did you mean '{guess}'?"
    return f"known in {parent}: {', '.join(known)}" if known else "`--help` lists all keys"


def _keys_in(group: str) -> list[str]:
    """Keys directly in a group; for a group of groups, all below it."""
    below = [key for key in KEYS if key.startswith(f"{group}.")]
    return [key for key in below if key.rpartition(".")[0] == group] or below


def _leaves(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for part, value in tree.items():
        name = f"{before}{part}"
        # An empty group is fine here; its missing keys are reported later.
        if isinstance(value, Mapping) and (value or name in GROUPS) and name not in KEYS:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _checked(name: str, key: Key, value: Any) -> Any:
    optional = strip_optional(key.kind) is not key.kind
    if value == MISSING:
        raise ConfigurationError(f"{name} needs a value in this experiment: set {name}=VALUE{', or null' if optional else ''}")
    # `key=` is how a shell script passes an empty variable.
    if value is None or value == "":
        if not optional:
            raise ConfigurationError(f"{name} is {'null' if value is None else 'empty'}; expected {_describe_expected(key)}")
        return None
    converted = _converted(key, value)
    is_other = (key.only is not None and converted != key.only) or (key.choices and converted not in key.choices)
    if converted is None or is_other:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        raise ConfigurationError(f"{name} is {shown}; expected {_describe_expected(key)}")
    return converted


def _converted(key: Key, value: Any) -> Any:
    """The value converted to the key's type; None if it does not fit."""
    kind = strip_optional(key.kind)
    if kind is NUMBERS:
        is_list = isinstance(value, list) and all(_is_number(item) for item in value)
        return [float(item) for item in value] if is_list and len(key.fields) in (1, len(value)) else None
    if kind is float:
        return value if _is_number(value) else None
    if kind is int:
        # DeepSpeed's configs write 2e8 for an integer.
        return int(value) if _is_number(value) and value == int(value) else None
    if str in typing.get_args(kind) and isinstance(value, list):
        # Hydra reads `a,b` as two values to sweep over; a list is `[a,b]`.
        return ",".join(map(str, value))
    return value if isinstance(value, kind) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def _describe_expected(key: Key) -> str:
    if key.only is not None:
        return f"{key.only}, the only value this trainer supports"
    if key.choices:
        return f"one of {', '.join(key.choices)}"
    if key.kind is NUMBERS:
        return f"a list of {len(key.fields)} numbers" if len(key.fields) > 1 else "a list of numbers, as in [1.0,1.5]"
    return describe_type(key.kind)


Values = Mapping[str, Any]
AT_LEAST_ONE = (f"{TRAIN}.timing_window", f"{TRAIN}.eta_min_samples")
FLAG_VALUES = {"true": "1", "false": "0"}
ENVIRONMENT = "environment"
_FIELDS = sorted({field for key in KEYS.values() for field in key.fields})
_COMPOUND_FIELDS = [field for field in _FIELDS if "_" in field]
_FIELD = re.compile(rf"(?<![\w.])(?:(?:{'|'.join(_FIELDS)})(?= is |=| \()|(?:{'|'.join(_COMPOUND_FIELDS)})(?!\w))")


@dataclass(frozen=True, kw_only=True)
class Variable:
    """An environment variable that the probe and the training log read, and where its value comes from."""

    name: str
    value: str
    asked: str
    """The key's value; the name is that in run_context.json."""
    key: str
    given_by: str
    """The key, or `environment` where the variable was already set, which takes precedence."""


def settings_of(values: Values) -> Settings:
    """The flat settings; a ConfigurationError names the key of an invalid value."""
    flat = {field: value for name, key in KEYS.items() for field, value in _filled(name, key, values)}
    flat["precision"] = precision_of(values)
    try:
        return Settings(**flat)
    except ValueError as error:
        raise ConfigurationError(with_key_names(str(error)) + _precision_source(str(error), values)) from None


def precision_of(values: Values) -> str:
    """train.precision; else DeepSpeed's rule if one of its switches is set; else auto."""
    bf16, fp16 = values[BF16], values[FP16]
    if values[PRECISION] is not None:
        return str(values[PRECISION])
    if bf16 and fp16:
        raise ConfigurationError(f"{BF16} and {FP16} are both true: set one of them to false")
    if bf16 is None and fp16 is None:
        return "auto"
    return "bf16" if bf16 else "fp16" if fp16 else "fp32"


def variables_of(values: Values, env: Mapping[str, str]) -> tuple[Variable, ...]:
    """The variable for each timing key; a value already in the environment is kept."""
    for name in AT_LEAST_ONE:
        if values[name] < 1:
            raise ConfigurationError(f"{name} is {values[name]}; it must be 1 or more")
    requested = {name: str(int(values[name]) if key.kind is bool else values[name]) for name, key in KEYS.items() if key.variable}
    variables = [_variable(name, KEYS[name].variable, text, env) for name, text in requested.items() if name != ETA_MODE]
    eta = (ETA_MODE, requested[ETA_MODE]) if values[ETA_ON] else (ETA_ON, OFF)
    return (*variables, _variable(eta[0], KEYS[ETA_MODE].variable, eta[1], env))


def without_effect(values: Values, variables: tuple[Variable, ...]) -> dict[str, Choice]:
    """Keys whose value is ignored or overridden, each with its reason."""
    choices: dict[str, Choice] = {}
    if values[STEPS_PER_PRINT] is not None:
        reason = "DeepSpeed prints nothing here: use train.log_every_steps"
        choices[STEPS_PER_PRINT] = Choice(values[STEPS_PER_PRINT], None, reason)
    if not values[SAVE_LATEST]:
        choices[SAVE_LATEST] = Choice(False, True, "the newest checkpoint is always marked, since resuming needs it")
    choices |= _overridden_switches(values)
    for variable in variables:
        if FLAG_VALUES.get(variable.value.lower(), variable.value) != variable.asked:
            reason = f"{variable.name} was already set in the environment"
            choices[variable.key] = Choice(values[variable.key], variable.value, reason)
    return choices


def with_key_names(message: str) -> str:
    """A message of Settings with keys instead of field names. A field named by a plain word is replaced only before a value."""
    return _FIELD.sub(lambda found: source_of(found[0]), message)


def _filled(name: str, key: Key, values: Values) -> list[tuple[str, Any]]:
    """Fields of Settings that this key sets, with their values."""
    value = values[name]
    if name == BOUNDARIES:
        # The original driver passes an empty list while buckets are off.
        return [("bucket_boundaries_s", ",".join(map(str, value)))] if value or values[USE_BUCKETS] else []
    if key.kind is NUMBERS:
        return list(zip(key.fields, value, strict=True))
    for field in key.fields:
        _check_agreement(field, name, values)
    return [(field, value) for field in key.fields]


def _check_agreement(field: str, name: str, values: Values) -> None:
    """Two keys that set one field must agree."""
    for other, key in KEYS.items():
        if field in key.fields and values[other] != values[name]:
            first, second = sorted((name, other))
            raise ConfigurationError(f"{first} is {values[first]} and {second} is {values[second]}; this trainer uses one value for both")


def _precision_source(message: str, values: Values) -> str:
    """The switch that set a rejected precision, where train.precision did not."""
    if not message.startswith("precision ") or values[PRECISION] is not None:
        return ""
    return f" ({BF16 if values[BF16] else FP16} is true)"


def _variable(key: str, name: str, asked: str, env: Mapping[str, str]) -> Variable:
    given = env.get(name, "")
    return Variable(name=name, value=given or asked, asked=asked, key=key, given_by=ENVIRONMENT if given else key)


def _overridden_switches(values: Values) -> dict[str, Choice]:
    """DeepSpeed's precision switches that train.precision overrides."""
    precision = values[PRECISION]
    given = {name: kind for name, kind in ((BF16, "bf16"), (FP16, "fp16")) if values[name] is not None}
    if precision is None:
        return {}
    if precision == "auto":
        return {name: Choice(values[name], None, f"{PRECISION}=auto decides by the GPU") for name in given}
    effective = {name: precision == kind for name, kind in given.items()}
    reason = f"overridden by {PRECISION}={precision}"
    return {name: Choice(values[name], enabled, reason) for name, enabled in effective.items() if values[name] != enabled}
