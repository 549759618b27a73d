"""Where an agent writes: to the attempt's folder, or on many hosts to its node's own, under the same names."""

from __future__ import annotations

from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentOrder


def own_paths(order: AgentOrder) -> AttemptPaths:
    """Its log, its samples, the stacks it takes itself; what ranks write lies in the attempt's folder on every host."""
    return AttemptPaths(Path(order.own_folder or order.attempt_folder))
