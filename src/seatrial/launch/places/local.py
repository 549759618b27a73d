"""This machine: the ranks and devices the plan names, and a port held while the run lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from seatrial.machine.deepspeed_devices import needs_no_gpu
from seatrial.machine.gpus import Driver
from seatrial.ports import reserve_port
from seatrial.records.command import Allocation
from seatrial.records.run_spec import RunSpec


@contextlib.contextmanager
def allocate(spec: RunSpec) -> Iterator[Allocation]:
    """An allocation whose port no other campaign can take until the block ends."""
    with reserve_port(spec.place.port, spec.place.port_base) as reserved:
        yield allocation(spec, reserved.port)


def allocation(spec: RunSpec, master_port: int, driver: Driver | None = None) -> Allocation:
    """What `spec` gets here, with a port that somebody else holds; without `driver` the GPUs' is asked where it matters."""
    # Only DeepSpeed has to be told.
    cpu_only = spec.launcher.kind == "deepspeed" and needs_no_gpu(spec, driver=driver)
    return Allocation(ranks=spec.place.ranks, devices=spec.place.devices, master_port=master_port, cpu_only=cpu_only)
