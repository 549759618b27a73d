"""The network interfaces that a plan or the caller names for NCCL and Gloo: on each host they must be there, be up and have an address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.machine.interfaces import is_loopback
from seatrial.machine.nic_names import gloo_names, taken_by_nccl
from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.exchanges import usable
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import GLOO, Wanted
from seatrial.preflight.question import Question
from seatrial.records.check import Check

NIC = Question(
    name="interface by {who}",
    looks_at="that what place.interface, NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names (by the rules of each) is on every host, is up and "
    "has an address, and that loopback is not the first of it",
    prevents="{error}",
    fix="name an interface that every host has ({there}), in place.interface or the variable; `ip -br address` on each host lists them",
    in_docs={
        "who": "place.interface",
        "error": "Bootstrap : no socket interface found; socketStartConnect: Connect to 127.0.0.1<…> failed; or Gloo's: ifa != nullptr. "
        "Unable to find address for: eth7",
        "there": "those it has are named",
    },
    refuses=True,
)
QUESTIONS = (NIC,)
NCCL_FINDS_NONE = "Bootstrap : no socket interface found"
GLOO_FINDS_NONE = "[enforce fail at gloo/transport/tcp/device.cc] ifa != nullptr. Unable to find address for: {name}"
NCCL_TAKES_LOOPBACK = "socketStartConnect: Connect to 127.0.0.1<…> failed : Connection refused"


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    for who, text in wanted.interfaces.items():
        for host in wanted.names:
            facts = answers.facts.get(host)
            if facts is not None:
                yield HostCheck(host=host, check=_check(who, text, facts.interfaces))


def _check(who: str, text: str, interfaces: Mapping[str, tuple[str, ...]]) -> Check:
    there = ", ".join(name for name, addresses in interfaces.items() if usable(addresses)) or "this one has none with an address"
    found, error = _gloo(text, interfaces) if who == GLOO else _nccl(text, interfaces)
    return NIC.answer(not error, found, who=who, error=error or NCCL_FINDS_NONE, there=there)


def _nccl(text: str, interfaces: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    """What was found, and the error it leads to; empty for none."""
    with_address = [name for name, addresses in interfaces.items() if addresses]
    taken = taken_by_nccl(text, with_address)
    if not taken:
        bare = taken_by_nccl(text, interfaces)
        why = f"{', '.join(bare)} has no address" if bare else f"nothing that is up fits {text!r}"
        return why, NCCL_FINDS_NONE
    if all(is_loopback(address) for address in interfaces[taken[0]]):
        return f"{text!r} takes {taken[0]} first, which is loopback", NCCL_TAKES_LOOPBACK
    return f"{taken[0]} {interfaces[taken[0]][0]}", ""


def _gloo(text: str, interfaces: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    for name in gloo_names(text):
        if name.startswith(("^", "=")):
            return f"{text!r} is NCCL's way of writing: Gloo takes whole names only", GLOO_FINDS_NONE.format(name=name)
        if name not in interfaces:
            return f"no interface {name} that is up", GLOO_FINDS_NONE.format(name=name)
        if not usable(interfaces[name]):
            return f"{name} has no address that others can reach", GLOO_FINDS_NONE.format(name=name)
    return ", ".join(f"{name} {usable(interfaces[name])[0]}" for name in gloo_names(text)), ""
