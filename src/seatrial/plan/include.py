"""`place.include`: `localhost:0,1` to the GPU ids in it."""

from __future__ import annotations

import re

THIS_MACHINE = ("localhost", "127.0.0.1")
_DEVICE = re.compile(r"\d+|(?:GPU|MIG)-[A-Za-z0-9/-]+")


def devices_in(include: str) -> tuple[str, ...]:
    """GPU ids of an include text; ValueError says what is wrong with it."""
    host, colon, ids = include.strip().partition(":")
    if "@" in include or (host and host not in THIS_MACHINE):
        other = host if host not in THIS_MACHINE else include.split("@")[1].partition(":")[0]
        raise ValueError(f"'{other}' is another host; only GPUs of this machine can be used yet: write localhost:0,1")
    if not host or not colon or not ids.strip():
        raise ValueError(f"'{include}' names no GPUs; write localhost:0 or localhost:0,1")
    devices = tuple(part.strip() for part in ids.split(","))
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise ValueError(f"'{device}' is not a GPU id in '{include}'; write numbers with commas between them, localhost:0,1")
    if len(set(devices)) < len(devices):
        raise ValueError(f"'{include}' names a GPU twice")
    return devices
