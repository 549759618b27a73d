"""Whether a name of a hostfile means the machine this process runs on.

By its own name, or by an address of one of its interfaces. A name that gives a loopback address and is not this host's own counts for
another host: where /etc/hosts is wrong, ranks meant for that host must not start here unnoticed.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Callable, Collection

import psutil

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

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


def interface_addresses() -> frozenset[str]:
    return frozenset(address for addresses in interfaces().values() for address in addresses)


def interfaces() -> dict[str, tuple[str, ...]]:
    """Every interface that is up → its IP addresses, in the kernel's order; those without an address too."""
    stats = psutil.net_if_stats()
    return {
        name: tuple(
            str(entry.address).partition("%")[0] for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6) and entry.address
        )
        for name, entries in psutil.net_if_addrs().items()
        if name not in stats or stats[name].isup
    }


# Of a thousand hosts each is asked what a thousand names mean: the same addresses, again and again.
@functools.lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
