"""What a program of Seatrial ends with: one table for the command line, the drivers of runbooks and the preparation of data."""

from __future__ import annotations

import signal

DONE = 0
"""PASS, or done."""
WRONG_USE = 1
"""Words or a plan that cannot be read, a file that cannot be written, an error of ours."""
FAILED = 2
"""FAIL, or refused before anything was started."""
INCONCLUSIVE = 3
"""The data cannot say."""
INTERRUPTED = 130
"""One of these signals, whatever it broke off."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
