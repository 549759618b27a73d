"""What the hosts answered in each exchange, made safe to read: a part that is missing or of another shape is a trouble in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seatrial.records.host_facts import HostFacts
from seatrial.records.reply import Reply

Link = tuple[str, str]
"""Two hosts: who called, and who was called."""


@dataclass(frozen=True, kw_only=True)
class LinkSpeed:
    """What a trial between two hosts gave, in bytes per second."""

    there: float
    """From the one that called."""
    back: float
    trouble: str = ""
    """Why there is no figure, where there is none."""

    @property
    def slowest(self) -> float:
        return min(self.there, self.back)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Replies of one exchange after the other; a host that fell silent has none from then on."""

    first: Mapping[str, Reply]
    second: Mapping[str, Reply] = field(default_factory=dict)
    third: Mapping[str, Reply] = field(default_factory=dict)
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Host → the name of its trial file in the folder that is to be shared."""
    fast: bool = True
    """Whether the short form was asked."""
    links: Mapping[Link, LinkSpeed] = field(default_factory=dict)
    """Between whom it was tried how fast the network is."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Host → how texts call it, where that is more than its name."""

    def answered(self, host: str) -> bool:
        return host in self.first and not self.first[host].trouble

    def on_one_machine(self, host: str, other: str) -> bool:
        """Two nodes that were started on one machine, for a trial."""
        one, two = self.facts.get(host), self.facts.get(other)
        return one is not None and two is not None and (one.host, one.boot_id) == (two.host, two.boot_id)

    def label(self, host: str) -> str:
        return self.labels.get(host, host)


def part(replies: Mapping[str, Reply], host: str, name: str) -> Mapping[str, Any]:
    """One part of a host's reply; `{"trouble": …}` where there is none."""
    reply = replies.get(host)
    if reply is None:
        return {"trouble": "it was not asked"}
    if reply.trouble:
        return {"trouble": reply.trouble}
    parts = reply.told.get("parts")
    found = parts.get(name) if isinstance(parts, dict) else None
    return found if isinstance(found, dict) else {"trouble": str(reply.told.get("trouble") or f"it said nothing of {name}")}


def trouble(told: Mapping[str, Any]) -> str:
    return str(told.get("trouble") or "")


def texts(told: Mapping[str, Any], key: str) -> dict[str, str]:
    """A mapping of names to texts within an answer; {} for anything else."""
    found = told.get(key)
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, dict) else {}


def lists(told: Mapping[str, Any], key: str) -> dict[str, list[str]]:
    """A mapping of names to lists of texts, likewise."""
    found = told.get(key)
    return (
        {str(name): [str(one) for one in many] for name, many in found.items() if isinstance(many, list)} if isinstance(found, dict) else {}
    )
