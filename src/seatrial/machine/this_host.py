"""Whether a name of a hostfile means the machine this process runs on.

By its own name, or by an address of one of its interfaces. A name that gives a loopback address and is not this host's own counts for
another host: where /etc/hosts is wrong, ranks meant for that host must not start here unnoticed.

In: a name. Out: yes or no, and the addresses that the resolver knows for it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection

from seatrial.machine.interfaces import interface_addresses, is_loopback

LOCALHOST = "localhost"
LOCAL_NAMES = (LOCALHOST, "127.0.0.1", "::1")
# Stands for the machine the harness runs on where the hostfile does not name it: no hostfile can have a name with a space.
THIS_MACHINE = "this machine"

Resolve = Callable[[str], Collection[str]]


def is_this_host(
    name: str, own_name: str | None = None, own_addresses: Collection[str] | None = None, resolve: Resolve | None = None
) -> bool:
    """Whether `name` is this host; a resolver that does not know it says no."""
    own = socket.gethostname() if own_name is None else own_name
    if name in LOCAL_NAMES or name == own or name == own.partition(".")[0] or (name.partition(".")[0] == own and "." not in own):
        return True
    addresses = interface_addresses() if own_addresses is None else own_addresses
    found = (resolved if resolve is None else resolve)(name)
    return any(address in addresses and not is_loopback(address) for address in found)


def resolved(name: str) -> tuple[str, ...]:
    """Addresses of a name, each once, in the resolver's order; none where it does not know it."""
    try:
        found = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
