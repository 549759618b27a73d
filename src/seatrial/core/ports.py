"""A port that is reserved for a run, not merely probed.

The socket is bound without SO_REUSEADDR, so that a second one is refused; the option is then set on the bound socket, which stays open
without listening, so that the run's own rendezvous server (which sets the option too) can bind the same port.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from seatrial.core.errors import LaunchError, PortTakenError

# As the original scripts do. Below the kernel's usual range for outgoing connections (32768 and up), where a client could use it by chance.
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
    """`port` itself; else the first free one of the 200 from `base` on; else one of the 200 from FIRST_PORT on, or any free one."""
    if port is not None:
        return _reserve_exactly(port)
    reserved = _first_free(candidate_ports() if base is None else ports_from(base)) or (_bind(0) if base is None else None)
    if reserved is None:
        first, then = base or FIRST_PORT, ", then any" if base is None else ""
        raise PortTakenError(f"no TCP port is free on this machine (tried {NUM_PORTS} from {first}{then}); stop what holds them")
    return reserved


def _reserve_exactly(port: int) -> ReservedPort:
    reserved = _bind(port)
    if reserved is not None:
        return reserved
    free = _first_free(ports_from(port + 1))
    if free is not None:
        free.close()
    other = f"the next free one is {free.port}" if free is not None else f"none of the {NUM_PORTS} after it is free"
    raise PortTakenError(f"port {port} is in use, or needs root; {other}")


def _first_free(ports: Sequence[int]) -> ReservedPort | None:
    return next((reserved for reserved in map(_bind, ports) if reserved), None)


def ports_from(first: int) -> list[int]:
    """The ports from `first` on, one after the other."""
    return [port for port in range(first, first + NUM_PORTS) if port <= LAST_PORT]


def candidate_ports() -> list[int]:
    """The ports in the order this process tries them, from an offset of its own: before the run's server listens, another one that sets
    SO_REUSEADDR could take the port, so two campaigns should not try the same one."""
    first = os.getpid() % NUM_PORTS
    return [FIRST_PORT + (first + offset) % NUM_PORTS for offset in range(NUM_PORTS)]


def _bind(port: int) -> ReservedPort | None:
    """`port` reserved, or None when it is in use (or needs root, as one below 1024)."""
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
