"""Warnings as values: `Check`, before a campaign starts, and `Caution`, beside its figures."""

from __future__ import annotations

from dataclasses import dataclass, field

Scalar = str | int | float | bool | None
"""A value of a setting, or of a cell of a table."""
Number = float | int | str | None
MAY_HAVE_FAILED = "may_have_failed"
"""Kind of the caution about a run that exited 0 and may have failed: no verdict passes on it."""
WORLD_UNKNOWN = "world_unknown"
"""Kind of the caution about a run without evidence that its ranks trained together."""
OTHER_NETWORK = "other_network"
"""Kind of the caution about a run whose ranks report another network or interface than the plan or the site names."""
SMALLER_WORLD = "smaller_communicators"
"""Kind of the caution about a run that logged only communicators of fewer ranks than planned."""
STEPS_START_OVER = "steps_start_over"
"""Kind of the caution about step numbers that start over without a named epoch."""


@dataclass(frozen=True, kw_only=True)
class Caution:
    """A fact that a reader needs to judge a figure."""

    kind: str
    """Stable: `one_repeat`, `no_steady_state`, `steps_compared`, `whole_run_only`, …"""
    text: str
    """The fact and what to do, in one or two sentences."""
    subject: str = ""
    """The run or group; empty for the whole campaign."""
    numbers: dict[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check before a campaign starts: what was found, the later error it prevents, and the fix."""

    name: str
    ok: bool
    found: str
    prevents: str
    fix: str = ""
    refuses: bool = True
    """Whether a campaign is refused where it is not ok; False for a warning."""
    hosts: tuple[str, ...] = ()
    """The hosts concerned; empty for a check of this machine."""
    noise: bool = False
    """Whether what it found makes step times vary: a possible cause of unstable figures."""
