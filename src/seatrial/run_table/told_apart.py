"""Names of groups and runs that two configurations carry, told apart by digits of the configuration's key: `mb16~427b`."""

from __future__ import annotations

APART = "~"
KEY_DIGITS = 4
"""Enough for the few configurations that share a name, and short enough to read."""


def told_apart(name: str, key: str) -> str:
    """The name with the digits behind it."""
    return f"{name}{APART}{key[:KEY_DIGITS]}"
