"""Reading of a summary.json that another version may have written: what is not there, or not of its kind, is empty.

In: plain JSON. Out: the value asked for, or the empty one of its kind; nothing raises.
"""

from __future__ import annotations

from typing import Any

from seatrial.report.numbers import number_in


def mapping(value: Any, *keys: str) -> dict[str, Any]:
    """The object under these keys; {} where there is none."""
    found = _under(value, keys)
    return found if isinstance(found, dict) else {}


def objects(value: Any, *keys: str) -> list[dict[str, Any]]:
    """The objects of the list under these keys."""
    return [one for one in items(value, *keys) if isinstance(one, dict)]


def items(value: Any, *keys: str) -> list[Any]:
    """The list under these keys; [] where there is none."""
    found = _under(value, keys)
    return found if isinstance(found, list) else []


def words(value: Any, *keys: str) -> list[str]:
    """The texts of the list under these keys."""
    return [one for one in items(value, *keys) if isinstance(one, str)]


def text(value: Any, *keys: str) -> str:
    """The text under these keys; '' where there is none."""
    found = _under(value, keys)
    return found if isinstance(found, str) else ""


def number(value: Any, *keys: str) -> float | None:
    """The number under these keys; None where there is none."""
    return number_in(_under(value, keys))


def whole(value: Any, *keys: str) -> int | None:
    """The whole number under these keys."""
    found = number(value, *keys)
    return None if found is None else int(found)


def _under(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
