"""The network between the hosts: interfaces, name resolution, connections, and the speed of links.

In: `HostsNeed` and `Answers`. Out: a `HostCheck` for each host that answered.

Link speeds are measured in two or three rounds whatever the number of hosts. Hosts form a ring and each is tried with both its
neighbours, as NCCL and Gloo join them. In one round every host takes part in one trial at most, so that no two share a host's link: an
even ring needs two rounds, an odd one three, and two hosts one, or three where the head is another machine: it then shows which of the
two is slow. A trial sends for at most SHORT's or LONG's seconds each way, and ends earlier once its bytes are through. A slow link is
tried once more, since a host may have been busy for a moment. A much slower link is attributed to the host whose links are all slow, else
to what lies between the two.
"""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.core.text import MIB, join_names
from seatrial.machine.network import is_loopback, match_nccl_interfaces, parse_gloo_interfaces
from seatrial.preflight.check_definition import HostCheck, refusal, warning
from seatrial.preflight.hosts.queries import (
    CALL,
    GLOO,
    PEER,
    RENDEZVOUS,
    Answers,
    HostsNeed,
    Link,
    LinkSpeed,
    Ring,
    answer_part,
    combined,
    gloo_has_interface,
    harness_addresses,
    list_mapping,
    peer_addresses,
    port_of,
    problem_in,
    text_mapping,
    token_of,
    usable,
)
from seatrial.records.launch import AskHosts, Reply

NIC = refusal(
    name="interface by {who}",
    what="that what place.interface, NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names (by the rules of each) is on every host, is up and "
    "has an address, and that loopback is not the first of it",
    prevents="{error}",
    fix="name an interface that every host has ({there}), in place.interface or the variable; `ip -br address` on each host lists them",
    in_docs={
        "who": "place.interface",
        "error": "Bootstrap : no socket interface found; socketStartConnect: Connect to 127.0.0.1<…> failed; or Gloo's: ifa != nullptr. "
        "Unable to find address for: eth7",
        "there": "those it has are named",
    },
)
INTERFACE_CHECKS = (NIC,)
NCCL_FINDS_NONE = "Bootstrap : no socket interface found"
GLOO_FINDS_NONE = "[enforce fail at gloo/transport/tcp/device.cc] ifa != nullptr. Unable to find address for: {name}"
NCCL_TAKES_LOOPBACK = "socketStartConnect: Connect to 127.0.0.1<…> failed : Connection refused"


def check_interfaces(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    for who, text in need.interfaces.items():
        for host in need.names:
            facts = answers.facts.get(host)
            if facts is None:
                continue
            there = ", ".join(name for name, addresses in facts.interfaces.items() if usable(addresses))
            found, error = _gloo_choice(text, facts.interfaces) if who == GLOO else _nccl_choice(text, facts.interfaces)
            options = there or "this one has none with an address"
            yield NIC.on(host, not error, found, who=who, error=error or NCCL_FINDS_NONE, there=options)


def _nccl_choice(text: str, interfaces: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    """(found, error it leads to); no error is empty."""
    with_address = [name for name, addresses in interfaces.items() if addresses]
    taken = match_nccl_interfaces(text, with_address)
    if not taken:
        bare = match_nccl_interfaces(text, interfaces)
        why = f"{', '.join(bare)} has no address" if bare else f"nothing that is up fits {text!r}"
        return why, NCCL_FINDS_NONE
    if all(is_loopback(address) for address in interfaces[taken[0]]):
        return f"{text!r} takes {taken[0]} first, which is loopback", NCCL_TAKES_LOOPBACK
    return f"{taken[0]} {interfaces[taken[0]][0]}", ""


def _gloo_choice(text: str, interfaces: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    for name in parse_gloo_interfaces(text):
        if name.startswith(("^", "=")):
            return f"{text!r} is NCCL's way of writing: Gloo takes whole names only", GLOO_FINDS_NONE.format(name=name)
        if name not in interfaces:
            return f"no interface {name} that is up", GLOO_FINDS_NONE.format(name=name)
        if not usable(interfaces[name]):
            return f"{name} has no address that others can reach", GLOO_FINDS_NONE.format(name=name)
    return ", ".join(f"{name} {usable(interfaces[name])[0]}" for name in parse_gloo_interfaces(text)), ""


OTHER_NAMES = refusal(
    name="name resolution",
    what="that every host's name resolves on every other host, to the same address everywhere and not to loopback",
    prevents="{error}",
    fix="correct /etc/hosts or DNS there ({what}), the same on all hosts",
    in_docs={
        "error": "The client socket has timed out after … while trying to connect to (node1, 29500); socket.gaierror: [Errno -2] Name or "
        "service not known; or a rendezvous on 127.0.0.1, where each host waits for itself",
        "what": "`getent hosts NAME` shows what a name means",
    },
)
MASTER_ADDRESS = refusal(
    name="master address",
    what="for place pernode, where no other name is looked up: that --master-addr (or place.master_addr) resolves on every "
    "node, to the same address everywhere and not to loopback on another node than node 0",
    prevents="{error}",
    fix="correct /etc/hosts or DNS there ({what}), or give --master-addr, on all nodes, as an address of node 0",
    in_docs={"error": OTHER_NAMES.in_docs["error"], "what": OTHER_NAMES.in_docs["what"]},
)
OWN_NAME = refusal(
    name="own name",
    what="that what a host calls itself resolves there, and not to loopback alone: without GLOO_SOCKET_IFNAME Gloo offers that "
    "address to the other ranks",
    prevents="RuntimeError: Gloo connectFullMesh failed with … Connection refused, remote=[127.0.1.1]",
    fix="{way}",
    in_docs={"way": "set place.interface to the interface between the hosts, or give the name its network address in /etc/hosts"},
)
NAME_CHECKS = (OTHER_NAMES, MASTER_ADDRESS, OWN_NAME)
MAX_NAMES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class _Resolved:
    """Name resolution on one host, parsed once: each of a thousand hosts answers for a thousand names."""

    own: str
    """The host's own name."""
    reports_own_name: bool
    addresses: Mapping[str, list[str]]
    problems: Mapping[str, str]
    mine: Collection[str]
    """Addresses of its interfaces."""

    @functools.cached_property
    def knows_itself(self) -> bool:
        """Whether its own name resolves to an address of its own that others can use."""
        return any(address in self.mine for address in usable(self.addresses.get(self.own, [])))


def check_names(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    resolved = {host: found for host in need.names if (found := _resolved_on(answers, host))}
    usual = {name: _usual_addresses(need, answers, resolved, name) for name in need.names_to_resolve}
    # A single host need not be found by others.
    reporting = {host: one for host, one in resolved.items() if one.reports_own_name and len(need.names) > 1}
    # One such host is reached through its connections to the others; two never find each other.
    found_by_none = sum(not one.knows_itself for one in reporting.values()) > 1
    for host, one in resolved.items():
        yield _others_check(need, answers, host, one, usual)
        if host in reporting:
            yield _own_name_check(need, answers, host, one, usual, found_by_none)


def _resolved_on(answers: Answers, host: str) -> _Resolved | None:
    answer = answer_part(answers.first, host, "names")
    if not answers.answered(host) or problem_in(answer):
        return None
    addresses, problems = list_mapping(answer, "addresses"), text_mapping(answer, "troubles")
    own, mine = answer.get("own"), _own_addresses(answers, host)
    reports_own_name = isinstance(own, str) and (own in addresses or own in problems)
    return _Resolved(own=str(answer.get("own", host)), reports_own_name=reports_own_name, addresses=addresses, problems=problems, mine=mine)


def _own_addresses(answers: Answers, host: str) -> frozenset[str]:
    facts = answers.facts.get(host)
    return frozenset(address for many in facts.interfaces.values() for address in many) if facts else frozenset()


def _usual_addresses(need: HostsNeed, answers: Answers, resolved: Mapping[str, _Resolved], name: str) -> frozenset[str]:
    """The usable addresses that most hosts resolve `name` to; those that its host really has are preferred."""
    meanings = Counter(_meaning(tuple(one.addresses.get(name, ()))) for one in resolved.values())
    del meanings[frozenset()]
    own = _own_addresses(answers, need.master if name == need.master_addr else name)
    fitting = {meaning: count for meaning, count in meanings.items() if own & meaning} or meanings
    return max(fitting, key=lambda meaning: fitting[meaning], default=frozenset())


@functools.lru_cache(maxsize=4096)
def _meaning(addresses: tuple[str, ...]) -> frozenset[str]:
    return frozenset(usable(addresses))


def _others_check(need: HostsNeed, answers: Answers, host: str, resolved: _Resolved, usual: Mapping[str, frozenset[str]]) -> HostCheck:
    meanings, problems = resolved.addresses, resolved.problems
    # Its own name is checked separately.
    itself = {host, answers.facts[host].host if host in answers.facts else ""} if need.by_ssh else set()
    wrong: list[tuple[str, str, str]] = []
    for name, expected in usual.items():
        if name in itself:
            continue
        addresses = meanings.get(name, [])
        if name in problems or not addresses:
            wrong.append((name, f"{name}: {problems.get(name) or 'no address'}", "socket.gaierror: [Errno -2] Name or service not known"))
        elif any(is_loopback(address) for address in addresses):
            # On node 0's own machine loopback works.
            if name == need.master_addr and (host == need.master or answers.on_one_machine(host, need.master)):
                continue
            wrong.append((name, f"{name} is {', '.join(addresses)} here", "a rendezvous on 127.0.0.1, where each host waits for itself"))
        elif expected.isdisjoint(addresses):
            late = f"The client socket has timed out after … while trying to connect to ({name}, …)"
            wrong.append((name, f"{name} is {', '.join(addresses)} here, {' '.join(sorted(expected))} elsewhere", late))
    resolves = f"{len(usual)} names resolve" if need.by_ssh else f"{need.master_addr} is {', '.join(meanings.get(need.master_addr, []))}"
    found = "; ".join(text for _, text, _ in wrong[:MAX_NAMES_SHOWN]) or resolves
    what = f"`getent hosts {wrong[0][0]}` shows what it means" if wrong else ""
    error = wrong[0][2] if wrong else ""
    definition = OTHER_NAMES if need.by_ssh else MASTER_ADDRESS
    return definition.on(host, not wrong, found, error=error, what=what)


def _own_name_check(
    need: HostsNeed, answers: Answers, host: str, resolved: _Resolved, usual: Mapping[str, frozenset[str]], refuses: bool
) -> HostCheck:
    own, problem = resolved.own, resolved.problems.get(resolved.own, "")
    addresses = resolved.addresses.get(own, [])
    found = f"{own}: {problem}" if problem else f"{own} is {', '.join(addresses) or 'nothing'}"
    if usable(addresses) and not resolved.knows_itself:
        found += ", which is not one of its own addresses"
    suggestion = _interface(answers, host, usual.get(host, frozenset()))
    named = f"set place.interface: {suggestion}" if suggestion else "set place.interface to the interface between the hosts"
    way = f"{named}, or give {own} its network address in /etc/hosts there, before 127.0.1.1"
    # With an interface given, Gloo does not look up the name; NCCL never does.
    ok, refused = resolved.knows_itself or gloo_has_interface(need), need.planned and need.gloo and refuses
    return OWN_NAME.on(host, ok, found, refuses=refused, way=way)


def _interface(answers: Answers, host: str, outside: Collection[str]) -> str:
    """The interface by which the others reach this host; `outside` are the addresses they use."""
    facts = answers.facts.get(host)
    if facts is None:
        return ""
    with_address = [name for name, addresses in facts.interfaces.items() if usable(addresses)]
    return next(
        (name for name in with_address if set(facts.interfaces[name]) & set(outside)), with_address[0] if len(with_address) == 1 else ""
    )


_OPEN = "open it between the hosts (firewall, security group), or name ports that are open: place.port, place.port_base"
BIND = refusal(
    name="rendezvous port",
    what="that each host can listen on a port of the plan's range, node 0 on place.port where one is given",
    prevents="RuntimeError: The server socket has failed to listen on any local network address. EADDRINUSE: address already in use",
    fix="end what listens there (`ss -ltnp` on the host), or name another place.port",
)
REACHES_RENDEZVOUS = refusal(
    name="reaches the rendezvous",
    what="that each host reaches node 0 on a port in the range of the rendezvous",
    prevents="torch.distributed.DistNetworkError: The client socket has timed out after … while trying to connect to ({address}, {port})",
    fix="{way}",
    in_docs={"address": "node1", "port": "29500", "way": _OPEN},
)
PEERS = refusal(
    name="reaches other hosts",
    what="that node 0 reaches every host, and each host the next one (every other one in the long form), at the address that NCCL and "
    "Gloo will use, on a port of the plan's range",
    prevents="NCCL WARN socketStartConnect: Connect to … failed : {reason}; or: Gloo connectFullMesh failed",
    fix="{way}; or name the interface that joins the hosts: place.interface",
    in_docs={"reason": "No route to host", "way": _OPEN},
)
CALLS = refusal(
    name="reaches the head",
    what="that each host reaches the head on a port the kernel chooses: agents call the harness there",
    prevents="a run that ends before it starts: the harness could not be reached from {host}",
    fix="open the ports of /proc/sys/net/ipv4/ip_local_port_range on the head to the hosts, or start seatrial on one of them",
)
REACH_CHECKS = (BIND, REACHES_RENDEZVOUS, PEERS, CALLS)
MAX_PEERS_SHOWN = 3


def check_reach(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    for host in need.names:
        if answers.answered(host):
            yield _bound(need, answers, host)
    ring = Ring(need, answers)
    for host in need.names:
        answer = answer_part(answers.second, host, "reach")
        if host not in answers.second:
            continue
        if problem_in(answer):
            yield PEERS.on(host, False, problem_in(answer), reason=problem_in(answer), way=_OPEN)
            continue
        yield from _reached(need, answers, host, ring.peers(host), text_mapping(answer, "troubles"))


def _bound(need: HostsNeed, answers: Answers, host: str) -> HostCheck:
    answer = answer_part(answers.first, host, RENDEZVOUS)
    problem = problem_in(answer)
    # A plan's port may be busy only for a moment: it is bound again for each run.
    mine = host == need.master and need.place.port is not None
    found = f"port {need.place.port}: {problem}" if problem and mine else problem or f"port {answer.get('port')}"
    return BIND.on(host, not problem, found)


def _reached(need: HostsNeed, answers: Answers, host: str, tried: Sequence[str], problems: Mapping[str, str]) -> Iterator[HostCheck]:
    port = answer_part(answers.first, need.master, RENDEZVOUS).get("port")
    if host != need.master and port is not None:
        problem = problems.get(RENDEZVOUS, "")
        found = f"port {port}: {problem}" if problem else f"{need.master_addr} port {port}"
        yield REACHES_RENDEZVOUS.on(host, not problem, found, address=need.master_addr, port=port, way=reach_fix(problem))
    missed = {name.removeprefix(f"{PEER} "): problem for name, problem in problems.items() if name.startswith(f"{PEER} ")}
    if tried:
        not_reached = [f"{answers.label(name)} ({problem})" for name, problem in missed.items()]
        found = (
            f"not {join_names(not_reached, MAX_PEERS_SHOWN)}" if missed else join_names(list(map(answers.label, tried)), MAX_PEERS_SHOWN)
        )
        reason = next(iter(missed.values()), "").rpartition(": ")[2] or "No route to host"
        yield PEERS.on(host, not missed, found, reason=reason, way=reach_fix(found))
    if host != need.head and answers.answered(need.head):
        problem = problems.get(CALL, "")
        yield CALLS.on(host, not problem, problem or "reached", host=answers.label(host))


def reach_fix(problem: str) -> str:
    return "correct the name there first (see name resolution)" if "not known" in problem or "resol" in problem else _OPEN


# 100 Mbit/s Ethernet carries about 11 MiB/s: gradients of any model take longer than its step.
SLOWEST_BYTES_PER_S = 10 * MIB
# Share of the median: below half may be a busy host, below a quarter is another kind of link.
MIN_RATIO = 0.25

SPEED = warning(
    name="link speed",
    what="how fast each host sends to its neighbours and they to it, in MiB/s: for a quarter of a second or 8 MiB at most (a tenth "
    "and 2 MiB before a campaign); a warning below a quarter of the median, or less than 10 MiB/s",
    prevents="every step waits for the slowest link; no error is shown",
    fix="look at its cable, switch port and negotiated speed (`ethtool {device}`); name the fast interface where there are several "
    "(place.interface); remove limits that are set there (`tc qdisc show`)",
    in_docs={"device": "eth0"},
)
LINK_CHECKS = (SPEED,)


def slow_links(links: Mapping[Link, LinkSpeed]) -> list[Link]:
    """Links much slower than the others, by their slower direction; for a single link the two directions are compared."""
    rising = sorted(speed.slowest for speed in links.values())
    return [link for link, speed in links.items() if speed.slowest < max(SLOWEST_BYTES_PER_S, MIN_RATIO * _usual_speed(rising, speed))]


def _usual_speed(rising: Sequence[float], own: LinkSpeed) -> float:
    """The high median of the other links: of three hosts with one slow link, two of three trials are slow. `rising` are the slower
    directions of all links, sorted."""
    if len(rising) == 1:
        return max(own.there, own.back)
    middle = (len(rising) - 1) // 2
    # Without a value at or below the middle, the median of the others is one further.
    return rising[middle + 1] if own.slowest <= rising[middle] else rising[middle]


def check_links(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    links, slow = answers.links, set(slow_links(answers.links))
    links_of: dict[str, list[Link]] = {}
    for link in links:
        for host in link:
            links_of.setdefault(host, []).append(link)
    guilty = {host for host, own in links_of.items() if slow.issuperset(own)}
    # Neither host is slow with others: the fault lies between them.
    between = {link for link in slow if not guilty & {*link}}
    for host in need.names:
        own = links_of.get(host)
        if not own:
            continue
        blamed = own if host in guilty else [link for link in own if link in between]
        found = _slow_text(answers, host, blamed, slow) if blamed else _figures(links, host, own)
        yield SPEED.on(host, not blamed, found, device=_device(answers, host))


def _figures(links: Mapping[Link, LinkSpeed], host: str, own: Collection[Link]) -> str:
    """The best figures, which show what the host's own link can do."""
    out = max(links[link].there if link[0] == host else links[link].back for link in own)
    into = max(links[link].back if link[0] == host else links[link].there for link in own)
    return f"{_mib(out)} MiB/s out, {_mib(into)} MiB/s in"


def _slow_text(answers: Answers, host: str, blamed: Collection[Link], slow: Collection[Link]) -> str:
    others = ", ".join(answers.label(other) for link in blamed for other in link if other != host)
    problems = [answers.links[link].problem for link in blamed]
    if all(problems):
        return f"could not be measured with {others}: {problems[0]}"
    sound = [speed.slowest for link, speed in answers.links.items() if link not in slow]
    elsewhere = f"; {_mib(statistics.median_high(sound))} MiB/s elsewhere" if sound else ""
    return f"{_figures(answers.links, host, blamed)}, tried with {others}{elsewhere}"


def _mib(bytes_per_s: float) -> str:
    return f"{bytes_per_s / MIB:.0f}" if bytes_per_s >= 10 * MIB else f"{bytes_per_s / MIB:.1f}"


def _device(answers: Answers, host: str) -> str:
    """Interface to name in the fix: the host's only one with an address, else eth0."""
    facts = answers.facts.get(host)
    names = [name for name, addresses in (facts.interfaces if facts else {}).items() if name != "lo" and addresses]
    return names[0] if len(names) == 1 else "eth0"


SHORT: Mapping[str, Any] = {"seconds": 0.1, "bytes": 2 << 20}
LONG: Mapping[str, Any] = {"seconds": 0.25, "bytes": 8 << 20}
TRIAL_TIMEOUT_S = 7.0


def measure_links(ask: AskHosts, need: HostsNeed, nonce: str, secret: str, answers: Answers) -> dict[Link, LinkSpeed]:
    """The speed of every link that could be tried; `secret` is the one of the first exchange."""
    targets = {link: target for link in _links(need, answers) if (target := _trial_target(need, nonce, secret, answers, link))}
    found: dict[Link, LinkSpeed] = {}
    for links in trial_rounds(targets):
        found |= _run_trials(ask, links, targets, SHORT if answers.fast else LONG)
    for links in trial_rounds(link for link in slow_links(found) if not found[link].problem):
        again = _run_trials(ask, links, targets, LONG)
        found |= {link: best_of(found[link], speed) for link, speed in again.items()}
    return found


def trial_rounds(links: Iterable[Link]) -> list[list[Link]]:
    """Links in rounds: each in the first round in which both its hosts are free."""
    rounds: list[list[Link]] = []
    busy: list[set[str]] = []
    for link in links:
        number = next((number for number, hosts in enumerate(busy) if hosts.isdisjoint(link)), len(rounds))
        if number == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[number].append(link)
        busy[number].update(link)
    return rounds


def best_of(first: LinkSpeed, second: LinkSpeed) -> LinkSpeed:
    """The faster of two measurements: other traffic only slows a link."""
    return LinkSpeed(there=max(first.there, second.there), back=max(first.back, second.back), problem=first.problem and second.problem)


def _links(need: HostsNeed, answers: Answers) -> list[Link]:
    ring = [host for host in need.names if answers.answered(host) and port_of(answers, host, PEER) is not None]
    if len(ring) < 2:
        return []
    if len(ring) > 2:
        return list(zip(ring, [*ring[1:], ring[0]], strict=True))
    head = [] if need.head in need.names or not answers.answered(need.head) else [need.head]
    return [(ring[0], ring[1]), *((host, other) for other in head for host in ring)]


def _trial_target(need: HostsNeed, nonce: str, secret: str, answers: Answers, link: Link) -> dict[str, Any] | None:
    """Where the server listens; None if it does not or was not reached, which another check reports."""
    caller, called = link
    what = PEER if called in need.names else CALL
    name = f"{PEER} {called}" if what == PEER else CALL
    reached = answer_part(answers.second, caller, "reach")
    port = port_of(answers, called, what)
    if port is None or problem_in(reached) or name in text_mapping(reached, "troubles"):
        return None
    known = text_mapping(reached, "at").get(name)
    addresses = [known] if known else peer_addresses(need, answers, called) if what == PEER else harness_addresses(need, answers)
    return {"addresses": addresses, "port": port, "token": token_of(nonce, called), "word": secret}


def _run_trials(ask: AskHosts, links: list[Link], targets: Mapping[Link, Any], how: Mapping[str, Any]) -> dict[Link, LinkSpeed]:
    definitions = {link[0]: combined({"speed": {"ask": "speed", "target": targets[link], **how}}) for link in links}
    replies = ask(definitions, TRIAL_TIMEOUT_S)
    return {link: _measured_speed(replies, link[0]) for link in links}


def _measured_speed(replies: Mapping[str, Reply], caller: str) -> LinkSpeed:
    answer = answer_part(replies, caller, "speed")
    there, back = answer.get("to"), answer.get("from")
    if not isinstance(there, (int, float)) or not isinstance(back, (int, float)):
        return LinkSpeed(there=0.0, back=0.0, problem=problem_in(answer) or "no speed in its answer")
    return LinkSpeed(there=float(there), back=float(back))
