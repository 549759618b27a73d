"""Checks of keys and values. In: names as typed, and the tree that Hydra composed. Out: dotted name → value, or a ConfigurationError.

Hydra lets `++train.typo=1` pass, and so does a config file of the user's own: every name is looked up here, and every value is of the
kind that its key takes. What an error names is the key as it is typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.errors import nearest
from seatrial_workloads.common.settings_checks import kind_in_words, without_none
from seatrial_workloads.contrastive.hydra_config.deepspeed_keys import is_known_to_deepspeed
from seatrial_workloads.contrastive.hydra_config.keys import DEEPSPEED, GROUPS, KEYS, NUMBERS, Key

MISSING = "???"
"""What Hydra writes for a value that must be given."""


class ConfigurationError(Exception):
    """What was asked for cannot be done; one sentence for the person who typed it."""


def checked_values(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every key, of the right kind."""
    found = dict(_leaves(tree))
    for name in found:
        check_name(name)
    for name in KEYS:
        if name not in found:
            raise ConfigurationError(f"{name} was taken out, and the trainer reads it: give it a value instead")
    return {name: _checked(name, KEYS[name], found[name]) for name in KEYS}


def check_name(name: str) -> None:
    """Refuse a name that is no key, with the nearest one that is."""
    if name in KEYS:
        return
    if name in GROUPS:
        raise ConfigurationError(f"{name} holds keys and takes no value itself: {', '.join(_keys_in(name))}")
    inside = name.removeprefix(f"{DEEPSPEED}.")
    if inside != name and is_known_to_deepspeed(inside):
        raise ConfigurationError(f"{name} is a key of DeepSpeed that this trainer does not act on: leave it out")
    raise ConfigurationError(f"unknown key '{name}': {_remedy(name)}")


def _remedy(name: str) -> str:
    parent, _, last = name.rpartition(".")
    known = [key.removeprefix(f"{parent}.") for key in _keys_in(parent)] if parent in GROUPS else []
    near = nearest(last, known)
    # Someone who knows a key's own name may have forgotten where it stands.
    elsewhere = [key for key in KEYS if key.rpartition(".")[2] == last]
    guess = f"{parent}.{near}" if near else nearest(name, elsewhere, likeness=0) if elsewhere else None
    if guess is None and not known:
        guess = nearest(name, list(KEYS), likeness=0.75)
    if guess:
        return f"did you mean '{guess}'?"
    return f"known in {parent}: {', '.join(known)}" if known else "`--help` lists all keys"


def _keys_in(group: str) -> list[str]:
    """Keys that stand directly in a group; of one that holds only groups, all below it."""
    below = [key for key in KEYS if key.startswith(f"{group}.")]
    return [key for key in below if key.rpartition(".")[0] == group] or below


def _leaves(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for word, value in tree.items():
        name = f"{before}{word}"
        # An empty group says nothing; that its keys are missing is found later.
        if isinstance(value, Mapping) and (value or name in GROUPS) and name not in KEYS:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _checked(name: str, key: Key, value: Any) -> Any:
    optional = without_none(key.kind) is not key.kind
    if value == MISSING:
        raise ConfigurationError(f"{name} has no value, and this experiment needs one: give {name}=VALUE{', or null' if optional else ''}")
    # `key=` is how a shell script passes on a variable that is empty.
    if value is None or value == "":
        if not optional:
            raise ConfigurationError(f"{name} is {'null' if value is None else 'empty'}; expected {_in_words(key)}")
        return None
    converted = _converted(key, value)
    if converted is None:
        raise ConfigurationError(f"{name} is {_shown(value)}; expected {_in_words(key)}")
    if (key.only is not None and converted != key.only) or (key.choices and converted not in key.choices):
        raise ConfigurationError(f"{name} is {_shown(value)}; expected {_in_words(key)}")
    return converted


def _converted(key: Key, value: Any) -> Any:
    """The value as its kind; None for one that is not of it."""
    kind = without_none(key.kind)
    if kind is NUMBERS:
        is_list = isinstance(value, list) and all(_is_number(item) for item in value)
        return [float(item) for item in value] if is_list and len(key.fields) in (1, len(value)) else None
    if kind is float:
        return value if _is_number(value) else None
    if kind is int:
        # DeepSpeed's files write 2e8 where a whole number is meant.
        return int(value) if _is_number(value) and value == int(value) else None
    return value if isinstance(value, kind) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def _in_words(key: Key) -> str:
    if key.only is not None:
        return f"{key.only}, which is all that this trainer does"
    if key.choices:
        return f"one of {', '.join(key.choices)}"
    if key.kind is NUMBERS:
        return f"a list of {len(key.fields)} numbers" if len(key.fields) > 1 else "a list of numbers, as in [1.0,1.5]"
    return str(kind_in_words(key.kind))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
