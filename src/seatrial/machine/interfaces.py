"""The addresses of this host's network interfaces, as everybody here reads them.

In: what psutil tells. Out: interface → its IP addresses; and of an address, whether others can do anything with it.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

import psutil

LOOPBACK = "127.0.0.1"
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def interfaces() -> dict[str, tuple[str, ...]]:
    """Every interface that is up → its IP addresses, in the kernel's order; those without an address too. Every interface at all where
    the kernel does not say which are up."""
    stats = {}
    with contextlib.suppress(OSError, psutil.Error):
        stats = psutil.net_if_stats()
    return {name: ip_addresses(entries) for name, entries in psutil.net_if_addrs().items() if name not in stats or stats[name].isup}


def ip_addresses(entries: Iterable[Any]) -> tuple[str, ...]:
    """Those among psutil's entries of one interface, without the scope (`%eth0`) of link-local ones; what is no address is passed over."""
    told = (str(entry.address).partition("%")[0] for entry in entries if entry.family in _FAMILIES)
    return tuple(address for address in told if _is_address(address))


def interface_addresses() -> frozenset[str]:
    """All of them together."""
    return frozenset(address for addresses in interfaces().values() for address in addresses)


# Of a thousand hosts each is asked what a thousand names mean: the same addresses, again and again.
@functools.lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    """Whether it leads back to whoever calls it; what is no address does not."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=4096)
def is_link_local(address: str) -> bool:
    """Of IPv6 alone: every interface has one, and without its interface it means nothing."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    return known.version == 6 and known.is_link_local


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True
