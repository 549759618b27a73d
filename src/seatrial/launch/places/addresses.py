"""Where hosts find each other: the addresses at which a node calls the harness, and the one at which ranks meet.

Another host is never given a loopback address: it would call itself. IPv4 alone, which is what the switchboard listens at.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seatrial.machine.interfaces import LOOPBACK, interfaces, is_loopback
from seatrial.machine.nic_names import taken_by_nccl
from seatrial.machine.this_host import LOCAL_NAMES, resolved
from seatrial.records.run_spec import PlaceSpec

# Of the route alone: nothing is sent to it.
_ANY_PORT = 9

Resolve = Callable[[str], Sequence[str]]
Route = Callable[[str], str | None]
Interfaces = Mapping[str, Sequence[str]]


def route_to(host: str) -> str | None:
    """This machine's own address on the way to `host`; None where there is no way or no such name."""
    with contextlib.suppress(OSError, UnicodeError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        # Of a datagram socket, "connecting" asks the routing table and sends nothing.
        unconnected.connect((host, _ANY_PORT))
        return str(unconnected.getsockname()[0])
    return None


def addresses_for(host: str, own_name: str, interface: str = "", route: Route = route_to, own: Interfaces | None = None) -> tuple[str, ...]:
    """Where `host`, another one, tries to reach this machine, in this order: the address on the way to it, this machine's name, those
    of the interfaces that the plan names, all others."""
    nics = interfaces() if own is None else own
    on_the_way = route(host) or ""
    named = [address for name in (taken_by_nccl(interface, nics) if interface else ()) for address in nics[name]]
    others = [address for addresses in nics.values() for address in addresses]
    in_order = (on_the_way, own_name, *named, *others)
    return tuple(dict.fromkeys(address for address in in_order if can_be_called(address) or _is_name(address)))


def master_address(
    place: PlaceSpec,
    first: str,
    told: Mapping[str, Any],
    others: Sequence[str],
    is_here: bool,
    route: Route = route_to,
    resolve: Resolve = resolved,
) -> str:
    """Where ranks meet. `first` is the name of node 0, `told` its addresses by interface as its agent says, `others` hosts that are not
    this machine, `is_here` whether node 0 is."""
    if place.master_addr:
        return place.master_addr
    if not others:
        return LOOPBACK
    nics = {str(name): [str(address) for address in addresses] for name, addresses in told.items() if isinstance(addresses, (list, tuple))}
    on_named = [address for name in taken_by_nccl(place.interface, nics) for address in nics[name] if can_be_called(address)]
    if place.interface and len(on_named) == 1:
        return on_named[0]
    known = {address for addresses in nics.values() for address in addresses}
    # An address says the same on every host, a name only where all resolve it alike.
    by_name = [address for address in resolve(first) if address in known and can_be_called(address)]
    on_the_way = route(others[0]) if is_here else None
    return (by_name or [on_the_way or first])[0]


def _is_name(address: str) -> bool:
    """A host's own name, where it has one."""
    return bool(address) and address not in LOCAL_NAMES and not re.fullmatch(r"[0-9.]+|.*:.*", address)


def can_be_called(address: str) -> bool:
    """IPv4 and not loopback."""
    try:
        return ipaddress.ip_address(address).version == 4 and not is_loopback(address)
    except ValueError:
        return False
