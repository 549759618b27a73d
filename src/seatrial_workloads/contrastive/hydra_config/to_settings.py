"""From checked keys to what a training needs. In: dotted name → value. Out: Settings, the variables to set, keys that have no effect.

Whatever the flat Settings refuses is said with the key that was typed in place of the field's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.records.eta import OFF
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError
from seatrial_workloads.contrastive.hydra_config.keys import (
    BF16,
    BOUNDARIES,
    ETA_MODE,
    ETA_ON,
    FP16,
    KEYS,
    NUMBERS,
    PRECISION,
    SAVE_LATEST,
    STEPS_PER_PRINT,
    TRAIN,
    USE_BUCKETS,
    Key,
    source_of,
)
from seatrial_workloads.contrastive.settings import Settings

Values = Mapping[str, Any]
AT_LEAST_ONE = (f"{TRAIN}.timing_window", f"{TRAIN}.eta_min_samples")
FLAG_WORDS = {"true": "1", "false": "0"}
ENVIRONMENT = "environment"
_FIELDS = sorted({field for key in KEYS.values() for field in key.fields})
_ODD_FIELDS = [field for field in _FIELDS if "_" in field]
_FIELD = re.compile(rf"(?<![\w.])(?:(?:{'|'.join(_FIELDS)})(?= is |=| \()|(?:{'|'.join(_ODD_FIELDS)})(?!\w))")


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable that the probe and the timing lines read, and who gave its value."""

    name: str
    value: str
    asked: str
    """What the key comes to."""
    key: str
    given_by: str
    """The key, or `environment` where whoever started the process had set it already: that one stands."""


def settings_of(values: Values) -> Settings:
    """The flat settings; a ConfigurationError that names the key for what they refuse."""
    flat = {field: value for name, key in KEYS.items() for field, value in _filled(name, key, values)}
    flat["precision"] = precision_of(values)
    try:
        return Settings(**flat)
    except ValueError as error:
        raise ConfigurationError(in_typed_words(str(error)) + _whence(str(error), values)) from None


def precision_of(values: Values) -> str:
    """train.precision; else DeepSpeed's rule as soon as one of its two switches was given; else auto."""
    bf16, fp16 = values[BF16], values[FP16]
    if values[PRECISION] is not None:
        return str(values[PRECISION])
    if bf16 and fp16:
        raise ConfigurationError(f"{BF16} and {FP16} are both true, and a training has one format: set one of them to false")
    if bf16 is None and fp16 is None:
        return "auto"
    return "bf16" if bf16 else "fp16" if fp16 else "fp32"


def variables_of(values: Values, env: Mapping[str, str]) -> tuple[Variable, ...]:
    """What each key of timing comes to; a value that the environment has already is kept."""
    for name in AT_LEAST_ONE:
        if values[name] < 1:
            raise ConfigurationError(f"{name} is {values[name]}; it must be 1 or more")
    asked = {name: _as_word(values[name]) for name, key in KEYS.items() if key.variable}
    told = [_variable(name, KEYS[name].variable, word, env) for name, word in asked.items() if name != ETA_MODE]
    eta = (ETA_MODE, asked[ETA_MODE]) if values[ETA_ON] else (ETA_ON, OFF)
    return (*told, _variable(eta[0], KEYS[ETA_MODE].variable, eta[1], env))


def without_effect(values: Values, variables: tuple[Variable, ...]) -> dict[str, Choice]:
    """Keys whose value is not what happens, each with its reason."""
    return _idle_keys(values) | _overruled_switches(values) | _overruled_by_environment(values, variables)


def in_typed_words(message: str) -> str:
    """A message of Settings with keys in place of field names. A field called as an ordinary word is one only where a value follows."""
    return _FIELD.sub(lambda found: source_of(found[0]), message)


def _filled(name: str, key: Key, values: Values) -> list[tuple[str, Any]]:
    """Fields of Settings that this key fills, with their values."""
    value = values[name]
    if name == BOUNDARIES:
        # The seed's own driver passes an empty list while buckets are off.
        return [("bucket_boundaries_s", ",".join(map(str, value)))] if value or values[USE_BUCKETS] else []
    if key.kind is NUMBERS:
        return list(zip(key.fields, value, strict=True))
    for field in key.fields:
        _check_agreement(field, name, values)
    return [(field, value) for field in key.fields]


def _check_agreement(field: str, name: str, values: Values) -> None:
    """Two keys that fill one field must say the same."""
    for other, key in KEYS.items():
        if field in key.fields and values[other] != values[name]:
            first, second = sorted((name, other))
            raise ConfigurationError(f"{first} is {values[first]} and {second} is {values[second]}; this trainer has one value for both")


def _whence(message: str, values: Values) -> str:
    """What made the precision, where it is refused and was not given under that name."""
    if not message.startswith("precision ") or values[PRECISION] is not None:
        return ""
    return f" ({BF16 if values[BF16] else FP16} is true)"


def _as_word(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _variable(key: str, name: str, asked: str, env: Mapping[str, str]) -> Variable:
    given = env.get(name, "")
    return Variable(name=name, value=given or asked, asked=asked, key=key, given_by=ENVIRONMENT if given else key)


def _idle_keys(values: Values) -> dict[str, Choice]:
    told = {}
    if values[STEPS_PER_PRINT] is not None:
        reason = "DeepSpeed prints nothing here: lines are said every train.log_every_steps steps"
        told[STEPS_PER_PRINT] = Choice(values[STEPS_PER_PRINT], None, reason)
    if not values[SAVE_LATEST]:
        told[SAVE_LATEST] = Choice(False, True, "the newest checkpoint is always marked: resuming needs the mark")
    return told


def _overruled_switches(values: Values) -> dict[str, Choice]:
    """What train.precision makes of DeepSpeed's two."""
    wins = values[PRECISION]
    given = {name: kind for name, kind in ((BF16, "bf16"), (FP16, "fp16")) if values[name] is not None}
    if wins is None:
        return {}
    if wins == "auto":
        return {name: Choice(values[name], None, f"{PRECISION}=auto: the machine decides") for name in given}
    effective = {name: wins == kind for name, kind in given.items()}
    reason = f"{PRECISION}={wins} stands over it"
    return {name: Choice(values[name], enabled, reason) for name, enabled in effective.items() if values[name] != enabled}


def _overruled_by_environment(values: Values, variables: tuple[Variable, ...]) -> dict[str, Choice]:
    return {
        variable.key: Choice(values[variable.key], variable.value, f"{variable.name} was already set where the process was started")
        for variable in variables
        if FLAG_WORDS.get(variable.value.lower(), variable.value) != variable.asked
    }
