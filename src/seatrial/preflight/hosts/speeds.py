"""How fast each host's link is, judged by trials between neighbours (`link_trials`): a link that is much slower than the others is the
fault of the host all of whose links are, else of what lies between the two."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

from seatrial.preflight.hosts.answers import Answers, Link, LinkSpeed
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question
from seatrial.units import MIB

# 100 Mbit/s Ethernet carries about 11 MiB/s: gradients of any model take longer than its step.
SLOWEST_BYTES_PER_S = 10 * MIB
# Of what is usual: less than half may be a busy host, less than a quarter is another kind of link.
LEAST_RATIO = 0.25

SPEED = Question(
    name="link speed",
    looks_at="how fast each host sends to its neighbours and they to it, in MiB/s: for a quarter of a second or 8 MiB at most (a tenth "
    "and 2 MiB before a campaign); amiss is less than a quarter of what is usual, or less than 10 MiB/s",
    prevents="every step waits for the slowest link; no error is shown",
    fix="look at its cable, switch port and negotiated speed (`ethtool {device}`); name the fast interface where there are several "
    "(place.interface); remove limits that are set there (`tc qdisc show`)",
    in_docs={"device": "eth0"},
)
QUESTIONS = (SPEED,)


def slow_links(links: Mapping[Link, LinkSpeed]) -> list[Link]:
    """Those much slower than the others, in their slower direction; of a single one the two directions are compared."""
    rising = sorted(speed.slowest for speed in links.values())
    return [link for link, speed in links.items() if speed.slowest < max(SLOWEST_BYTES_PER_S, LEAST_RATIO * _usual(rising, speed))]


def _usual(rising: Sequence[float], own: LinkSpeed) -> float:
    """The median of the others, the higher of two: of three hosts with one slow link, two of the three trials are slow. `rising` are the
    slower directions of all links, in order."""
    if len(rising) == 1:
        return max(own.there, own.back)
    middle = (len(rising) - 1) // 2
    # Where its own stands before that place, the others' median stands one further.
    return rising[middle + 1] if own.slowest <= rising[middle] else rising[middle]


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    links, slow = answers.links, set(slow_links(answers.links))
    links_of: dict[str, list[Link]] = {}
    for link in links:
        for host in link:
            links_of.setdefault(host, []).append(link)
    guilty = {host for host, own in links_of.items() if slow.issuperset(own)}
    # Neither host is slow with others: it is what lies between them.
    between = {link for link in slow if not guilty & {*link}}
    for host in wanted.names:
        own = links_of.get(host)
        if not own:
            continue
        blamed = own if host in guilty else [link for link in own if link in between]
        found = _amiss(answers, host, blamed, slow) if blamed else _figures(links, host, own)
        yield HostCheck(host=host, check=SPEED.answer(not blamed, found, device=_device(answers, host)))


def _figures(links: Mapping[Link, LinkSpeed], host: str, own: Collection[Link]) -> str:
    """At its best, which is what the host's own link can do."""
    out = max(links[link].there if link[0] == host else links[link].back for link in own)
    into = max(links[link].back if link[0] == host else links[link].there for link in own)
    return f"{_mib(out)} MiB/s out, {_mib(into)} MiB/s in"


def _amiss(answers: Answers, host: str, blamed: Collection[Link], slow: Collection[Link]) -> str:
    others = ", ".join(answers.label(other) for link in blamed for other in link if other != host)
    troubles = [answers.links[link].trouble for link in blamed]
    if all(troubles):
        return f"could not be measured with {others}: {troubles[0]}"
    sound = [speed.slowest for link, speed in answers.links.items() if link not in slow]
    elsewhere = f"; {_mib(statistics.median_high(sound))} MiB/s elsewhere" if sound else ""
    return f"{_figures(answers.links, host, blamed)}, tried with {others}{elsewhere}"


def _mib(bytes_per_s: float) -> str:
    return f"{bytes_per_s / MIB:.0f}" if bytes_per_s >= 10 * MIB else f"{bytes_per_s / MIB:.1f}"


def _device(answers: Answers, host: str) -> str:
    """For the fix: the host's only interface that others reach, else any."""
    facts = answers.facts.get(host)
    names = [name for name, addresses in (facts.interfaces if facts else {}).items() if name != "lo" and addresses]
    return names[0] if len(names) == 1 else "eth0"
