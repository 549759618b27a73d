"""Waiting for what another process or thread does: by looking again, with an end to the patience. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02


def wait_until(happened: Callable[[], object], what: str = "what the test waits for", patience_s: float = PATIENCE_S) -> None:
    """Look until `happened()` is true; fail with `what` did not happen when the patience ends."""
    end_m = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < end_m, f"did not happen within {patience_s:.0f} s: {what}"
        time.sleep(LOOK_EVERY_S)
