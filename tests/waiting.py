"""Waiting for another process or thread by polling, with a timeout. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

TIMEOUT_S = 120.0
POLL_S = 0.02


def wait_until(happened: Callable[[], Found], what: str = "what the test waits for", timeout_s: float = TIMEOUT_S) -> Found:
    """The result of `happened()` once it is true; fails with `what` at the timeout."""
    end_m = time.monotonic() + timeout_s
    while not (found := happened()):
        assert time.monotonic() < end_m, f"did not happen within {timeout_s:.0f} s: {what}"
        time.sleep(POLL_S)
    return found
