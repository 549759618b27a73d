"""One thing looked at before a campaign starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was found, the later error it prevents, and the fix."""

    name: str
    ok: bool
    found: str
    prevents: str
    fix: str = ""
    refuses: bool = True
    """Whether a campaign is refused when it is not ok; False for what is worth knowing and no reason not to go on."""
    hosts: tuple[str, ...] = ()
    """Of a check of many hosts: those it speaks of; empty for one of this machine."""
