"""How the driver says errors: in one line with the scripts' mark, in its log too; the rest it has in common with `seatrial`.

Exit codes: 0 PASS or done, 1 wrong use or an error of ours, 2 FAIL or refused, 3 INCONCLUSIVE, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from seatrial.cli import program
from seatrial.errors import printable
from seatrial.records.exit_codes import INTERRUPTED, WRONG_USE


def answered(act: Callable[[], int]) -> int:
    """What `act` returns; its errors become one line and an exit code. An error of ours is shown whole."""
    try:
        return program.answered(act, say_error)
    except KeyboardInterrupt:
        # A campaign that is interrupted says so itself, with what is left of it; this was before or after one.
        say_error("interrupted")
        return INTERRUPTED
    except Exception:
        sys.excepthook(*sys.exc_info())
        return WRONG_USE


def say_error(message: str) -> None:
    print(f"[ERROR] {printable(message)}", file=sys.stderr)
