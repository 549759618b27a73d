"""How a node reaches the harness, and what the line between them tells of its clock."""

from __future__ import annotations

from dataclasses import dataclass

LEASE_S = 20.0
"""Silence for this long is the end. Ten beats: a busy host or a short cut of the network is no reason to end a run."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """Where and how a node calls the harness; stands in a file that only the user can read."""

    addresses: tuple[str, ...]
    """Of the harness, tried one after another: names or addresses."""
    port: int
    token: str
    node: str
    """The name under which it is expected."""
    lease_s: float = LEASE_S


@dataclass(frozen=True, kw_only=True)
class NodeCall(Call):
    """What the agent of one node is told before it is told what to start (nodes/<name>/call.json)."""

    campaign: str
    """The campaign's folder: what earlier attempts in it left on the node is ended first."""
    attempt: str
    """The attempt's folder."""
    holds_port: bool = False
    """Whether this node keeps the rendezvous port for the run and says which it is: node 0 does. `port` above is the harness's own."""
    rendezvous_port: int | None = None
    """This one and no other."""
    port_base: int | None = None
    """Else the first free one of the 200 from here on."""


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """How far a node's wall clock is ahead of the harness's, by the beat that was answered quickest."""

    offset_s: float
    round_trip_s: float
    """The true offset lies within half of this."""
