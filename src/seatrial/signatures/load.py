"""The registry's data files, read.

In: the TOML files beside this module, in the order of FILES; each is a list of `[[signature]]` tables with the fields of `Signature`. Out:
the entries in that order, in which their patterns are tried: the earlier one wins where a line fits two. A key or value that no entry can
have is a ValueError that names file, entry and key; what an entry says is looked at by signatures.check, in the tests.
"""

from __future__ import annotations

import tomllib
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from seatrial.records.outcome import Cause, Fault
from seatrial.signatures.signature import Signature

FOLDER = Path(__file__).parent
FILES = ("deepspeed", "cluster", "memory", "gpu", "network", "storage", "script", "endings", "reports", "slow")
"""What is special stands before what is general: the last of those with patterns of failures is `script`."""
_LISTS = ("patterns", "exit_codes", "topics", "words", "effective", "env", "kinds")
_NEEDED = tuple(one.name for one in fields(Signature) if one.default is MISSING and one.default_factory is MISSING)
_TYPES = {name: typing.get_origin(hint) or hint for name, hint in typing.get_type_hints(Signature).items()}


def load_signatures(folder: Path = FOLDER, files: tuple[str, ...] = FILES) -> tuple[Signature, ...]:
    """Every entry of the files, in their order."""
    found: dict[str, Signature] = {}
    for name in files:
        for entry in _entries_of(folder / f"{name}.toml"):
            if entry.id in found:
                raise ValueError(f"{name}.toml: '{entry.id}' is there already; every entry needs an id of its own")
            found[entry.id] = entry
    return tuple(found.values())


def _entries_of(path: Path) -> Iterator[Signature]:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    unknown = sorted(set(data) - {"signature"})
    if unknown:
        raise ValueError(f"{path.name}: unknown table '{unknown[0]}'; entries are [[signature]] tables")
    for number, table in enumerate(data.get("signature", []), start=1):
        where = f"{path.name}, entry {table.get('id', number)}"
        _check_keys(table, where)
        yield Signature(**{key: _value(key, value, where) for key, value in table.items()})


def _check_keys(table: dict[str, Any], where: str) -> None:
    for key in sorted(set(table) - set(_TYPES)):
        raise ValueError(f"{where}: unknown key '{key}'; known are {', '.join(sorted(_TYPES))}")
    for key in _NEEDED:
        if not table.get(key):
            raise ValueError(f"{where}: '{key}' is missing or empty")


def _value(key: str, value: Any, where: str) -> Any:
    """As the record has it: enums for cause and fault, tuples for lists."""
    if key in ("cause", "fault"):
        return _word(Cause if key == "cause" else Fault, key, value, where)
    if key in _LISTS:
        kind = int if key == "exit_codes" else str
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise ValueError(f"{where}: '{key}' is to be a list of {'numbers' if kind is int else 'texts'}, not {value!r}")
        return tuple(value)
    if not isinstance(value, _TYPES[key]):
        raise ValueError(f"{where}: '{key}' is {value!r}, which is of the wrong type")
    return value


def _word(words: type[Cause] | type[Fault], key: str, value: Any, where: str) -> Cause | Fault:
    try:
        return words(value)
    except ValueError:
        raise ValueError(f"{where}: '{key}' is {value!r}; it is one of {', '.join(word.value for word in words)}") from None
