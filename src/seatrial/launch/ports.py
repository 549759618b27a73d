"""A port that is held for a run, not merely looked at.

The socket is bound without SO_REUSEADDR, so a second reserver is refused; the option is then set on the bound socket, which stays
open without listening, so that the run's own rendezvous server (which sets the option too) can bind the same port.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from types import TracebackType

from seatrial.errors import LaunchError

# As the seeds do. Below the kernel's usual range for outgoing connections (32768 and up), where a client could hold it by chance.
FIRST_PORT = 29650
MAX_TRIES = 200
HIGHEST_PORT = 65535


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


def reserve_port(first: int | None = None) -> ReservedPort:
    """The first free port of `first`, `first + 1`, … (200 tries), else any free one."""
    start = FIRST_PORT if first is None else first
    for port in range(start, min(start + MAX_TRIES, HIGHEST_PORT + 1)):
        reserved = _bound(port)
        if reserved:
            return reserved
    reserved = _bound(0)
    if reserved is None:
        raise LaunchError(f"no TCP port is free on this machine (tried {MAX_TRIES} from {start}, then any); end what holds them")
    return reserved


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
