"""A port that is held for a run, not merely looked at.

The socket is bound without SO_REUSEADDR, so a second reserver is refused; the option is then set on the bound socket, which stays
open without listening, so that the run's own rendezvous server (which sets the option too) can bind the same port.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from types import TracebackType

from seatrial.errors import LaunchError

# As the seeds do. Below the kernel's usual range for outgoing connections (32768 and up), where a client could hold it by chance.
FIRST_PORT = 29650
NUM_PORTS = 200


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


def reserve_port() -> ReservedPort:
    """A free port of the 200 from FIRST_PORT on, else any free one."""
    for port in candidates():
        reserved = _bound(port)
        if reserved:
            return reserved
    reserved = _bound(0)
    if reserved is None:
        raise LaunchError(f"no TCP port is free on this machine (tried {NUM_PORTS} from {FIRST_PORT}, then any); end what holds them")
    return reserved


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
