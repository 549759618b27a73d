"""What no plan may hold, wherever it stands in it: characters that no terminal, file or command takes, numbers beyond 64 bits.

In: the mapping of a plan, from a file or from a typed command. Out: nothing, or a PlanError at the key.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from seatrial.plan.locate import KeyPath, Locations

LARGEST_NUMBER = 2**63 - 1
TOO_LARGE = "a whole number beyond 64 bits, more than programs count with; make it smaller, or put it in quotes as text"
# What a person may want in an argument: a line break or a tab.
_TAKEN = "\n\t"


def refuse_what_cannot_be_carried(value: Any, locations: Locations, path: KeyPath = ()) -> None:
    """Raise for the first key or value that could not be shown, written to a file or handed to a process as it is."""
    if isinstance(value, dict):
        for key, item in value.items():
            here = (*path, key)
            _refuse(wrong_character(str(key)), here, locations)
            refuse_what_cannot_be_carried(item, locations, here)
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            refuse_what_cannot_be_carried(item, locations, (*path, position))
    elif isinstance(value, str):
        _refuse(wrong_character(value), path, locations)
    elif isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        _refuse(TOO_LARGE, path, locations)


def wrong_character(text: str) -> str | None:
    """What is wrong with the characters of a text; None when nothing is."""
    if text.isprintable():
        return None
    for letter in text:
        if unicodedata.category(letter) == "Cs":
            return "holds bytes that are not UTF-8; write or name it in UTF-8"
        if unicodedata.category(letter) == "Cc" and letter not in _TAKEN:
            return f"holds the control character {ord(letter):#04x}, which no plan needs; take it out"
    return None


def _refuse(problem: str | None, path: KeyPath, locations: Locations) -> None:
    if problem:
        raise locations.error(path, problem)
