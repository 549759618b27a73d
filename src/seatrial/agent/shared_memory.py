"""Removing the shared memory that a run left behind, once none of its processes lives."""

from __future__ import annotations

from seatrial.agent.reports import note
from seatrial.machine.shared_memory import left_behind
from seatrial.records.command import AgentOrder


def remove_left_behind(order: AgentOrder) -> int:
    """How many segments were removed; none where it is not known what stood there before."""
    if order.shared_memory is None:
        return 0
    removed = 0
    for path in left_behind(order.shared_memory):
        try:
            path.unlink()
            removed += 1
            note(f"removed {path}, shared memory that the run left behind")
        except OSError as error:
            note(f"{path}, shared memory that the run left behind, could not be removed ({error.strerror}); remove it by hand")
    return removed
