"""What the text of a cell stands for. In: text of a table or a log, None for a cell that is not there. Out: a value, None for none."""

from __future__ import annotations

LARGEST = 1e15
"""Beyond anything that a cell of a campaign holds."""
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def number(text: str | None) -> float | None:
    """None for an empty cell, for what is no number, for NaN, and for one that no cell comes near."""
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and abs(value) <= LARGEST else None


def whole(text: str | None) -> int | None:
    """A whole number, however it is written."""
    value = number(text)
    return int(value) if value is not None and value.is_integer() else None


def flag(text: str | None) -> bool | None:
    """None where the cell says neither yes nor no."""
    return _FLAGS.get(text.lower()) if text else None
