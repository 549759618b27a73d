"""`python -m seatrial.campaign.measuring_process PIPE PARENT`: one worker of `campaign.measuring`.

PIPE is the number of an open descriptor: attempts come through it, what was found goes back. Ends when the other end is closed, or with the
process PARENT, and says nothing then. No child of `multiprocessing`: that reads what to do before any line of ours, and complains on the
user's terminal where the parent was ended meanwhile.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from multiprocessing.connection import Connection

from seatrial.campaign.measuring import measure_some
from seatrial.kinship import end_with_parent

NEEDED = ("seatrial.analyse.measure", "seatrial.analyse.charts.run", "seatrial.collect.ahead", "seatrial.collect.steps")
"""What is loaded before there is anything to measure."""


def serve(pipe: Connection, parent: int) -> None:
    """Measure what comes through the pipe until it is closed."""
    end_with_parent(signal.SIGKILL)
    # What is measured is sent away and holds no circles; looking for some after every few hundred records costs a tenth of the time.
    gc.disable()
    with contextlib.suppress(EOFError, OSError):
        for name in NEEDED:
            importlib.import_module(name)
        while os.getppid() == parent:
            # Without the attempts, which the parent has: a third less to be sent.
            pipe.send(measure_some(*pipe.recv()))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
