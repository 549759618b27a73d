"""Several things done at once, each with a time limit of its own: one that hangs is told of, and holds up nobody.

A thread that hangs is left behind (`machine.patience.is_stuck` tells); who ends the process must not wait for it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from seatrial.machine.patience import aside

Told = dict[str, Any]
Act = Callable[[], Told]


def at_once(acts: Mapping[str, tuple[Act, float]]) -> dict[str, Told]:
    """Name → what it told, or `{"trouble": why}`; `acts` gives each with its limit in seconds."""
    began_m = time.monotonic()
    told: dict[str, Told] = {}
    threads = {name: aside(functools.partial(_do, name, act, told)) for name, (act, _) in acts.items()}
    for name, (_, limit_s) in acts.items():
        threads[name].join(max(0.0, began_m + limit_s - time.monotonic()))
    # A copy: what comes late must not change an answer that is being written.
    found = dict(told)
    return {name: found.get(name, {"trouble": f"no answer within {limit_s:g} s"}) for name, (_, limit_s) in acts.items()}


def _do(name: str, act: Act, told: dict[str, Told]) -> None:
    try:
        told[name] = act()
    except Exception as error:
        told[name] = {"trouble": words_of(error)}


def words_of(error: BaseException) -> str:
    """`Connection refused` of an OSError, the kind and the message of anything else."""
    reason = getattr(error, "strerror", None)
    # Without the address that Python adds to some.
    return str(reason).partition(" (while ")[0] if reason else f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
