"""`place.include` where there is no hostfile: `localhost:0,1` to the GPU ids in it."""

from __future__ import annotations

import re

from seatrial.machine.this_host import LOCAL_NAMES

_DEVICE = re.compile(r"\d+|(?:GPU|MIG)-[A-Za-z0-9/-]+")


def devices_in(include: str) -> tuple[str, ...]:
    """GPU ids of an include text; ValueError says what is wrong with it."""
    host, colon, ids = include.strip().partition(":")
    hosts = [part.partition(":")[0].strip() for part in include.split("@")]
    other = next((name for name in hosts if name and name not in LOCAL_NAMES), None)
    if other is not None:
        raise ValueError(
            f"'{other}' is another host; write `kind: hostfile` to run on those of a hostfile, or localhost:0,1 for GPUs of this machine"
        )
    if len(hosts) > 1:
        raise ValueError(f"'{include}' names several hosts that are all this machine; write localhost:0,1")
    if not host or not colon or not ids.strip():
        raise ValueError(f"'{include}' names no GPUs; write localhost:0 or localhost:0,1")
    devices = tuple(part.strip() for part in ids.split(","))
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise ValueError(f"'{device}' is not a GPU id in '{include}'; write numbers with commas between them, localhost:0,1")
    if len(set(devices)) < len(devices):
        raise ValueError(f"'{include}' names a GPU twice")
    return devices
