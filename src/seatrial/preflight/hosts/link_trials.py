"""Trials of how fast the hosts' links are, in two or three rounds whatever their number.

Hosts stand in a ring and each is tried with both its neighbours, as NCCL and Gloo join them. In one round every host takes part in one
trial at most, so that no two share a host's link: an even ring needs two rounds, an odd one three, and two hosts one, or three where the
head is another machine: it then tells which of the two is slow. A trial sends for at most SHORT's or LONG's seconds each way, and ends
earlier where its bytes are over: on links that are not slow all rounds together take a few hundredths of a second. What looks slow is
tried once more, as long: a host may have been busy for a moment. So a slow link costs a second or four, whatever the number of hosts;
most of it is its own queues, which hold up connections too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seatrial.preflight.hosts.answers import Answers, Link, LinkSpeed, part, texts, trouble
from seatrial.preflight.hosts.exchanges import called_at, in_parts, peer_addresses, token_of
from seatrial.preflight.hosts.ring import CALL, PEER, port_of
from seatrial.preflight.hosts.speeds import slow_links
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.records.reply import Ask, Reply

SHORT: Mapping[str, Any] = {"seconds": 0.1, "bytes": 2 << 20}
LONG: Mapping[str, Any] = {"seconds": 0.25, "bytes": 8 << 20}
PATIENCE_S = 7.0


def measured(ask: Ask, wanted: Wanted, nonce: str, word: str, answers: Answers) -> dict[Link, LinkSpeed]:
    """Every link that could be tried; `word` is what the listeners of the first exchange let callers in by."""
    targets = {link: target for link in _links(wanted, answers) if (target := _target(wanted, nonce, word, answers, link))}
    found: dict[Link, LinkSpeed] = {}
    for links in in_rounds(targets):
        found |= _tried(ask, links, targets, SHORT if answers.fast else LONG)
    for links in in_rounds(link for link in slow_links(found) if not found[link].trouble):
        again = _tried(ask, links, targets, LONG)
        found |= {link: better(found[link], speed) for link, speed in again.items()}
    return found


def in_rounds(links: Iterable[Link]) -> list[list[Link]]:
    """Each link in the first round in which both its hosts are free."""
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


def better(first: LinkSpeed, second: LinkSpeed) -> LinkSpeed:
    """Whatever else goes on can only make a link look slower."""
    return LinkSpeed(there=max(first.there, second.there), back=max(first.back, second.back), trouble=first.trouble and second.trouble)


def _links(wanted: Wanted, answers: Answers) -> list[Link]:
    """(who calls, who is called)."""
    ring = [host for host in wanted.names if answers.answered(host) and port_of(answers, host, PEER) is not None]
    if len(ring) < 2:
        return []
    if len(ring) > 2:
        return list(zip(ring, [*ring[1:], ring[0]], strict=True))
    head = [] if wanted.head in wanted.names or not answers.answered(wanted.head) else [wanted.head]
    return [(ring[0], ring[1]), *((host, other) for other in head for host in ring)]


def _target(wanted: Wanted, nonce: str, word: str, answers: Answers, link: Link) -> dict[str, Any] | None:
    """Where the called host listens; None where it does not, or was not reached: that is told of already."""
    caller, called = link
    what = PEER if called in wanted.names else CALL
    name = f"{PEER} {called}" if what == PEER else CALL
    reached = part(answers.second, caller, "reach")
    port = port_of(answers, called, what)
    if port is None or trouble(reached) or name in texts(reached, "troubles"):
        return None
    known = texts(reached, "at").get(name)
    addresses = [known] if known else peer_addresses(wanted, answers, called) if what == PEER else called_at(wanted, answers)
    return {"addresses": addresses, "port": port, "token": token_of(nonce, called), "word": word}


def _tried(ask: Ask, links: list[Link], targets: Mapping[Link, Any], how: Mapping[str, Any]) -> dict[Link, LinkSpeed]:
    questions = {link[0]: in_parts({"speed": {"ask": "speed", "target": targets[link], **how}}) for link in links}
    replies = ask(questions, PATIENCE_S)
    return {link: _told(replies, link[0]) for link in links}


def _told(replies: Mapping[str, Reply], caller: str) -> LinkSpeed:
    told = part(replies, caller, "speed")
    there, back = told.get("to"), told.get("from")
    if not isinstance(there, (int, float)) or not isinstance(back, (int, float)):
        return LinkSpeed(there=0.0, back=0.0, trouble=trouble(told) or "it told no speed")
    return LinkSpeed(there=float(there), back=float(back))
