"""What the programs of the procedure say: lines on stdout, which DRIVER_LOG_PATH keeps too, and warnings on stderr. Errors: program.py."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """At once: whoever watches a log sees a line when it is said."""
    print(text, flush=True)


def warn(text: str) -> None:
    """With the scripts' mark."""
    print(f"[WARN] {text}", file=sys.stderr)
