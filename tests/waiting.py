"""Waiting for what another process or thread does: by looking again, with an end to the patience. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02


def wait_until(happened: Callable[[], Found], what: str = "what the test waits for", patience_s: float = PATIENCE_S) -> Found:
    """What `happened()` gives once that is something; fails with `what` did not happen when the patience ends."""
    end_m = time.monotonic() + patience_s
    while not (found := happened()):
        assert time.monotonic() < end_m, f"did not happen within {patience_s:.0f} s: {what}"
        time.sleep(LOOK_EVERY_S)
    return found
