"""This machine: the ranks and devices the plan names, and a port held while the run lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from seatrial.launch.ports import reserve_port
from seatrial.records.command import Allocation
from seatrial.records.run_spec import RunSpec


@contextlib.contextmanager
def allocate(spec: RunSpec) -> Iterator[Allocation]:
    """An allocation whose port no other campaign can take until the block ends."""
    with reserve_port() as reserved:
        yield Allocation(ranks=spec.place.ranks, devices=spec.place.devices, master_port=reserved.port)
