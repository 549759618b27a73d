"""A port that is held for a run, not merely looked at.

The socket is bound without SO_REUSEADDR, so a second reserver is refused; the option is then set on the bound socket, which stays
open without listening, so that the run's own rendezvous server (which sets the option too) can bind the same port.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from seatrial.errors import LaunchError, PortTakenError

# As the seeds do. Below the kernel's usual range for outgoing connections (32768 and up), where a client could hold it by chance.
FIRST_PORT = 29650
NUM_PORTS = 200
LAST_PORT = 65535


@dataclass(frozen=True)
class ReservedPort:
    """A port held until `close()` or the end of the `with` block."""

    port: int
    socket: socket.socket

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> ReservedPort:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def reserve_port(port: int | None = None, base: int | None = None) -> ReservedPort:
    """This very `port`; else the first free one of the 200 from `base` on; else one of the 200 from FIRST_PORT on, or any free one."""
    if port is not None:
        return _this_one(port)
    reserved = _first_free(candidates() if base is None else in_order(base)) or (_bound(0) if base is None else None)
    if reserved is None:
        first, then = base or FIRST_PORT, ", then any" if base is None else ""
        raise PortTakenError(f"no TCP port is free on this machine (tried {NUM_PORTS} from {first}{then}); end what holds them")
    return reserved


def _this_one(port: int) -> ReservedPort:
    reserved = _bound(port)
    if reserved is not None:
        return reserved
    free = _first_free(in_order(port + 1))
    if free is not None:
        free.close()
    other = f"the next free one is {free.port}" if free is not None else f"none of the {NUM_PORTS} after it is free"
    raise PortTakenError(f"port {port} is in use, or not ours to take; {other}")


def _first_free(ports: Sequence[int]) -> ReservedPort | None:
    return next((reserved for reserved in map(_bound, ports) if reserved), None)


def in_order(first: int) -> list[int]:
    """The ports from `first` on, one after the other."""
    return [port for port in range(first, first + NUM_PORTS) if port <= LAST_PORT]


def candidates() -> list[int]:
    """The ports in the order this process tries them: all of them, from a place of its own.

    Between the reservation and the listening of the run's own server, another server that sets SO_REUSEADDR could take a held port;
    two campaigns that begin at different places do not meet there.
    """
    first = os.getpid() % NUM_PORTS
    return [FIRST_PORT + (first + offset) % NUM_PORTS for offset in range(NUM_PORTS)]


def _bound(port: int) -> ReservedPort | None:
    """`port` held, or None when someone has it (or it is not ours to take, as one below 1024)."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind(("0.0.0.0", port))
    except OSError as error:
        held.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise LaunchError(f"port {port} cannot be bound: {error}; check that this machine has a network stack (loopback up)") from error
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return ReservedPort(port=held.getsockname()[1], socket=held)
