"""The host's own name: whether it resolves, to what, and whether a port can be bound there. Asked with patience, since DNS may hang."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.preflight.need import Need
from seatrial.preflight.ports import cannot_bind
from seatrial.preflight.question import Question
from seatrial.records.check import Check

PATIENCE_S = 2.0

RESOLVES = Question(
    name="host name",
    looks_at="that the host's own name resolves, quickly, and that a port can be bound on the address",
    prevents="socket.gaierror: [Errno -2] Name or service not known; or a start-up that hangs for as long as DNS takes",
    fix="add the name to /etc/hosts ({name} and this host's address), or set GLOO_SOCKET_IFNAME and MASTER_ADDR",
)
REACHABLE = Question(
    name="host address",
    looks_at="whether the name gives an address that other nodes can reach",
    prevents="Connection refused on every other node, when this one is the master of several",
    fix="put the address of a network interface before 127.0.1.1 in /etc/hosts",
    only_tells=True,
)
QUESTIONS = (RESOLVES, REACHABLE)


@dataclass(frozen=True, kw_only=True)
class NameFacts:
    """What the resolver said."""

    name: str
    addresses: tuple[str, ...] = ()
    problem: str = ""
    not_bindable: tuple[str, ...] = ()


def checks(need: Need) -> Iterator[Check]:
    yield from judge(read_name(socket.gethostname()))


def read_name(name: str, patience_s: float = PATIENCE_S) -> NameFacts:
    """Asked in a thread, which is left behind when the resolver does not answer in time."""
    # Not by `machine.patience`, whose threads tell of a driver that hangs: a resolver is none.
    answers: list[NameFacts] = []
    asking = threading.Thread(target=lambda: answers.append(_resolved(name)), daemon=True)
    asking.start()
    asking.join(patience_s)
    return answers[0] if answers else NameFacts(name=name, problem=f"no answer in {patience_s:g} s")


def _resolved(name: str) -> NameFacts:
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        return NameFacts(name=name, problem=error.strerror or str(error))
    addresses = tuple(sorted({str(entry[4][0]) for entry in found}))
    return NameFacts(name=name, addresses=addresses, not_bindable=tuple(address for address in addresses if cannot_bind(address, 0)))


def judge(facts: NameFacts) -> Iterator[Check]:
    unbound = f", where no port can be bound: {', '.join(facts.not_bindable)}" if facts.not_bindable else ""
    found = facts.problem or f"{facts.name} is {', '.join(facts.addresses)}{unbound}"
    yield RESOLVES.answer(not facts.problem and not unbound, found, name=facts.name)
    if facts.addresses:
        local = all(ipaddress.ip_address(address).is_loopback for address in facts.addresses)
        yield REACHABLE.answer(True, "loopback only: enough on one node" if local else "not loopback")
