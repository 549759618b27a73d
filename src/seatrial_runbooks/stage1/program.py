"""What makes the driver a program: errors in one line, exit codes, signals, as the command `seatrial` has them.

Exit codes: 0 PASS or done, 1 wrong use or an error of ours, 2 FAIL or refused, 3 INCONCLUSIVE, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from seatrial.cli.machine_trouble import machine_trouble
from seatrial.cli.main import Unbreakable, end_process
from seatrial.cli.stop_signals import INTERRUPTED, StopSignals
from seatrial.errors import SeatrialError, printable
from seatrial_runbooks.stage1.command_line import WRONG_USE as WRONG_USE


def exit_with(act: Callable[[], int]) -> NoReturn:
    """Do it and end the process with its code; an interrupt is 130 whatever it broke off."""
    sys.stdout, sys.stderr = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    with StopSignals() as signals:
        try:
            code = act()
        except KeyboardInterrupt:
            code = INTERRUPTED
    end_process(INTERRUPTED if signals.raised else code, at_once=signals.raised)


def answered(act: Callable[[], int]) -> int:
    """What `act` returns; its errors become one line and an exit code. An error of ours is shown whole."""
    try:
        return act()
    except SeatrialError as error:
        return say_error(str(error), error.exit_code)
    except KeyboardInterrupt:
        # A campaign that is interrupted says so itself, with what is left of it; this was before or after one.
        return say_error("interrupted", INTERRUPTED)
    except Exception as error:
        trouble = machine_trouble(error)
        if trouble:
            return say_error(trouble, WRONG_USE)
        sys.excepthook(*sys.exc_info())
        return WRONG_USE


def say_error(message: str, code: int) -> int:
    print(f"[ERROR] {printable(message)}", file=sys.stderr)
    return code
