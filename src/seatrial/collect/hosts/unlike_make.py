"""Hosts of one run that are not of one make.

In: what every host told of itself (provenance.json, `hosts`). Out: one caution that names what differs and who differs from most. All ranks
wait for the slowest host, so the figures of such a run are that host's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from seatrial.machine.fingerprint import make_of
from seatrial.records.caution import Caution
from seatrial.wording import MOST_NAMED

MEMORY = "memory_bytes"
PACKAGES = "packages"
"""`name=version` words."""
MEMORY_ALIKE = 0.05
"""Firmware and kernels of one make keep a little more or less for themselves."""
LONGEST_VALUE = 60


def unlike_cautions(run: str, hosts: Mapping[str, Mapping[str, str]]) -> Iterator[Caution]:
    """None where all are of one make, or nothing is known."""
    odd = unlike(hosts)
    if not odd:
        return
    facts = [f"{fact} ({_who(parted)})" for fact, parted in odd.items()]
    more = len(facts) - MOST_NAMED
    yield Caution(
        kind="unlike_hosts",
        subject=run,
        numbers={"hosts": len({host for parted in odd.values() for each in list(parted.values())[1:] for host in each}), "facts": len(odd)},
        text=f"The hosts of this run are not of one make: {'; '.join(facts[:MOST_NAMED])}{f'; and {more} more facts' if more > 0 else ''}. "
        "Every rank waits for the slowest of them; leave the odd ones out (`exclude`), or refuse such a set (`place: {alike: refuse}`).",
    )


def unlike(hosts: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Fact → its values, that of most hosts first, each with the hosts that have it; facts that all share are not there."""
    makes = {name: {**_apart(make_of(told)), MEMORY: _memory(hosts, told)} for name, told in hosts.items()}
    facts = dict.fromkeys(fact for make in makes.values() for fact in make)
    found: dict[str, dict[str, list[str]]] = {}
    for fact in facts:
        values = {name: make.get(fact, "") for name, make in makes.items()}
        order = [value for value, _ in Counter(values.values()).most_common()]
        if len(order) > 1:
            found[fact] = {value: [name for name, own in values.items() if own == value] for value in order}
    return found


def _apart(make: Mapping[str, str]) -> dict[str, str]:
    """With every package by itself: `torch` differs, and not the list of all."""
    words = (word.partition("=") for word in make.get(PACKAGES, "").split())
    return {**{name: value for name, value in make.items() if name != PACKAGES}, **{name: version for name, _, version in words}}


def _memory(hosts: Mapping[str, Mapping[str, str]], told: Mapping[str, str]) -> str:
    """What it has, as the first host with about as much tells it."""
    own = _bytes(told)
    if own is None:
        return ""
    sizes = (_bytes(other) for other in hosts.values())
    alike = next((size for size in sizes if size is not None and abs(size - own) <= MEMORY_ALIKE * max(size, own)), own)
    return f"{alike / 2**30:.0f} GiB"


def _bytes(told: Mapping[str, str]) -> float | None:
    text = told.get(MEMORY, "")
    return float(text) if text.isdecimal() else None


def _who(parted: Mapping[str, list[str]]) -> str:
    usual, *odd = parted.items()
    named = [f"{_short(value)} on {_listed(hosts)}" for value, hosts in odd[:MOST_NAMED]]
    return f"{', '.join(named)}, {_short(usual[0])} on {_listed(usual[1])}"


def _listed(hosts: list[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= MOST_NAMED else f"{len(hosts)} hosts"


def _short(value: str) -> str:
    text = value or "nothing"
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
