"""Whether every name of a hostfile led to a host of its own. In: what the agents said when they called. Out: nothing, or a HostError.

A name that resolves wrongly here (to loopback, to a neighbour) takes ssh to another machine, and a run that should use two hosts would
silently use one twice. A host is told by its own name and all its addresses together: either alone may be the same on many.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from seatrial.errors import HostError
from seatrial.launch.places.addresses import can_be_called
from seatrial.line.protocol import Message
from seatrial.machine.interfaces import interface_addresses
from seatrial.machine.this_host import THIS_MACHINE
from seatrial.records.command import Node

Identity = tuple[str, frozenset[str]]


def refuse_doubles(nodes: Sequence[Node], here: Collection[str], hellos: Mapping[str, Message], own: Identity | None = None) -> None:
    """HostError for a name that led to this machine, or to where another one leads; `here` may stand for this machine by several."""
    seen = {own or _own_identity(): THIS_MACHINE}
    for node in nodes:
        if node.name in here:
            continue
        identity = identity_of(hellos[node.name])
        other = seen.setdefault(identity, node.name)
        if other != node.name and identity[1]:
            problem = f"{node.name} led to {other}: the agent that was started there says that it runs on '{identity[0]}'"
            fix = f"correct what the name means here (`getent hosts {node.name}`, ~/.ssh/config), or take the line out of the hostfile"
            raise HostError(f"{problem}; {fix}", host=node.name, cause="name_unknown")


def identity_of(hello: Mapping[str, Any]) -> Identity:
    told = hello.get("addresses")
    lists = told.values() if isinstance(told, dict) else ()
    return _identity(str(hello.get("host")), (str(address) for addresses in lists if isinstance(addresses, list) for address in addresses))


def _own_identity() -> Identity:
    return _identity(socket.gethostname(), interface_addresses())


def _identity(host: str, addresses: Iterable[str]) -> Identity:
    return host, frozenset(address for address in addresses if can_be_called(address))
