"""What the hosts' names mean on each of them: the same address everywhere, and none that only the host itself can use."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from seatrial.machine.interfaces import is_loopback
from seatrial.preflight.hosts.answers import Answers, lists, part, texts, trouble
from seatrial.preflight.hosts.exchanges import gloo_is_told, usable
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question

SAME = Question(
    name="names of the others",
    looks_at="that every host's name resolves on every other host, to the same address everywhere and not to loopback",
    prevents="{error}",
    fix="mend /etc/hosts or DNS there ({what}), the same on all hosts",
    in_docs={
        "error": "The client socket has timed out after … while trying to connect to (node1, 29500); socket.gaierror: [Errno -2] Name or "
        "service not known; or a rendezvous on 127.0.0.1, where each host waits for itself",
        "what": "`getent hosts NAME` shows what a name means",
    },
    refuses=True,
)
MASTER = Question(
    name="master address",
    looks_at="for place pernode, where no other name is looked up: that --master-addr (or place.master_addr) resolves on every "
    "node, to the same address everywhere and not to loopback on another node than node 0",
    prevents="{error}",
    fix="mend /etc/hosts or DNS there ({what}), or give --master-addr, on all nodes, as an address of node 0",
    in_docs={"error": SAME.in_docs["error"], "what": SAME.in_docs["what"]},
    refuses=True,
)
OWN = Question(
    name="own name",
    looks_at="that what a host calls itself resolves there, and not to loopback alone: without GLOO_SOCKET_IFNAME Gloo offers that "
    "address to the other ranks",
    prevents="RuntimeError: Gloo connectFullMesh failed with … Connection refused, remote=[127.0.1.1]",
    fix="{way}",
    in_docs={"way": "set place.interface to the interface between the hosts, or give the name its network address in /etc/hosts"},
    refuses=True,
)
QUESTIONS = (SAME, MASTER, OWN)
MOST_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What names mean on one host, read once: of a thousand hosts each tells of a thousand."""

    own: str
    """What it calls itself."""
    tells_own: bool
    addresses: Mapping[str, list[str]]
    troubles: Mapping[str, str]
    mine: Collection[str]
    """The addresses of its interfaces."""

    @functools.cached_property
    def knows_itself(self) -> bool:
        """Whether what it calls itself is an address of its own that others can use."""
        return any(address in self.mine for address in usable(self.addresses.get(self.own, [])))


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    told = {host: found for host in wanted.names if (found := _told(answers, host))}
    usual = {name: _usual(wanted, answers, told, name) for name in wanted.looked_up}
    # One host alone has nobody to be found by.
    telling = {host: one for host, one in told.items() if one.tells_own and len(wanted.names) > 1}
    # One alone is reached by its connections to the others, two never find one another.
    found_by_none = sum(not one.knows_itself for one in telling.values()) > 1
    for host, one in told.items():
        yield _others(wanted, answers, host, one, usual)
        if host in telling:
            yield _own(wanted, answers, host, one, usual, found_by_none)


def _told(answers: Answers, host: str) -> _Told | None:
    told = part(answers.first, host, "names")
    if not answers.answered(host) or trouble(told):
        return None
    addresses, troubles = lists(told, "addresses"), texts(told, "troubles")
    own, mine = told.get("own"), _own_addresses(answers, host)
    tells_own = isinstance(own, str) and (own in addresses or own in troubles)
    return _Told(own=str(told.get("own", host)), tells_own=tells_own, addresses=addresses, troubles=troubles, mine=mine)


def _own_addresses(answers: Answers, host: str) -> frozenset[str]:
    facts = answers.facts.get(host)
    return frozenset(address for many in facts.interfaces.values() for address in many) if facts else frozenset()


def _usual(wanted: Wanted, answers: Answers, told: Mapping[str, _Told], name: str) -> frozenset[str]:
    """What the name is to mean: what most hosts take it for, of that which is an address of the host that has it, where any is; of what
    others could use too."""
    meanings = Counter(_meaning(tuple(one.addresses.get(name, ()))) for one in told.values())
    del meanings[frozenset()]
    own = _own_addresses(answers, wanted.master if name == wanted.master_addr else name)
    fitting = {meaning: count for meaning, count in meanings.items() if own & meaning} or meanings
    return max(fitting, key=lambda meaning: fitting[meaning], default=frozenset())


@functools.lru_cache(maxsize=4096)
def _meaning(addresses: tuple[str, ...]) -> frozenset[str]:
    return frozenset(usable(addresses))


def _others(wanted: Wanted, answers: Answers, host: str, told: _Told, usual: Mapping[str, frozenset[str]]) -> HostCheck:
    meanings, troubles = told.addresses, told.troubles
    # What its own name means to itself is the other question.
    itself = {host, answers.facts[host].host if host in answers.facts else ""} if wanted.by_ssh else set()
    amiss: list[tuple[str, str, str]] = []
    for name, expected in usual.items():
        if name in itself:
            continue
        addresses = meanings.get(name, [])
        if name in troubles or not addresses:
            amiss.append((name, f"{name}: {troubles.get(name) or 'no address'}", "socket.gaierror: [Errno -2] Name or service not known"))
        elif any(is_loopback(address) for address in addresses):
            # On node 0's own machine ranks may meet there.
            if name == wanted.master_addr and (host == wanted.master or answers.on_one_machine(host, wanted.master)):
                continue
            amiss.append((name, f"{name} is {', '.join(addresses)} here", "a rendezvous on 127.0.0.1, where each host waits for itself"))
        elif expected.isdisjoint(addresses):
            late = f"The client socket has timed out after … while trying to connect to ({name}, …)"
            amiss.append((name, f"{name} is {', '.join(addresses)} here, {' '.join(sorted(expected))} elsewhere", late))
    resolves = (
        f"{len(usual)} names resolve" if wanted.by_ssh else f"{wanted.master_addr} is {', '.join(meanings.get(wanted.master_addr, []))}"
    )
    found = "; ".join(text for _, text, _ in amiss[:MOST_SHOWN]) or resolves
    what = f"`getent hosts {amiss[0][0]}` shows what it means" if amiss else ""
    error = amiss[0][2] if amiss else ""
    question = SAME if wanted.by_ssh else MASTER
    return HostCheck(host=host, check=question.answer(not amiss, found, error=error, what=what))


def _own(wanted: Wanted, answers: Answers, host: str, told: _Told, usual: Mapping[str, frozenset[str]], refuses: bool) -> HostCheck:
    own, problem = told.own, told.troubles.get(told.own, "")
    addresses = told.addresses.get(own, [])
    found = f"{own}: {problem}" if problem else f"{own} is {', '.join(addresses) or 'nothing'}"
    if usable(addresses) and not told.knows_itself:
        found += ", which is none of its own addresses"
    suggestion = _interface(answers, host, usual.get(host, frozenset()))
    named = f"set place.interface: {suggestion}" if suggestion else "set place.interface to the interface between the hosts"
    way = f"{named}, or give {own} its network address in /etc/hosts there, before 127.0.1.1"
    # Told which interface to take, Gloo does not ask for the name; and NCCL never does.
    ok, refused = told.knows_itself or gloo_is_told(wanted), wanted.planned and wanted.gloo and refuses
    return HostCheck(host=host, check=OWN.answer(ok, found, refuses=refused, way=way))


def _interface(answers: Answers, host: str, outside: Collection[str]) -> str:
    """The interface at which the others find this host, `outside` being the addresses they know."""
    facts = answers.facts.get(host)
    if facts is None:
        return ""
    with_address = [name for name, addresses in facts.interfaces.items() if usable(addresses)]
    return next(
        (name for name in with_address if set(facts.interfaces[name]) & set(outside)), with_address[0] if len(with_address) == 1 else ""
    )
