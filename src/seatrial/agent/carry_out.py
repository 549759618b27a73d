"""One order, carried out to its end, and the way out after it.

In: an order and whoever gave it. Out: the exit code of the process.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping

from seatrial.agent.harness import Harness
from seatrial.agent.supervise import Supervisor
from seatrial.line.awake_clock import AwakeClock
from seatrial.records.command import AgentOrder


def carry_out(order: AgentOrder, caller: Mapping[str, str], harness: Harness, clock: AwakeClock | None = None) -> int:
    """The exit code. An error of ours is printed here as Python would, since the way out after it may be the short one too.

    `clock` is the one by which the harness was last heard, where it was heard before.
    """
    supervisor: Supervisor | None = None
    code = 0
    try:
        supervisor = Supervisor(order, caller, harness=harness, clock=clock)
        supervisor.run()
    except Exception as error:
        traceback.print_exc()
        harness.failed(f"{type(error).__name__}: {error}")
        code = 1
    harness.close()
    if supervisor is not None and supervisor.stuck:
        # The usual way out would wait for locks that the hung call holds; everything is written already.
        os._exit(code)
    return code
