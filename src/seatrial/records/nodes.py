"""The hosts of one attempt (attempt-N/nodes.json): who ran which ranks, how each ended, and how far its clock was off."""

from __future__ import annotations

from dataclasses import dataclass

SKEW_S = 1.0
"""From here on a clock is off. Less is what a time service leaves, and no more than half a sample's interval."""


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One host as the harness saw it."""

    name: str
    """As the hostfile has it."""
    host: str = ""
    """What the host calls itself; empty where its agent never called."""
    node_rank: int = 0
    first_rank: int = 0
    ranks: int = 1
    devices: tuple[str, ...] = ()
    returncode: int | None = None
    """Of its launcher; None where it never started, or never said."""
    ended: str = ""
    """`exited`, `lost` (nothing was heard of it any more) or `not_started`."""
    detail: str = ""
    """In words, what was not as it should be."""
    clock_offset_s: float | None = None
    """How far its wall clock was ahead of the harness's; None where it was not measured."""
    clock_round_trip_s: float | None = None
    killed: int = 0
    """Processes that had to be killed there; on a lost host, what was ended afterwards."""
    oom_kills: str = ""


@dataclass(frozen=True, kw_only=True)
class NodesRecord:
    """The whole file."""

    nodes: tuple[NodeRecord, ...] = ()
    via: str = ""
    """What started the agents: `pdsh`, `ssh`, `pernode`, or `here` where every host is this machine."""
    master_addr: str = ""
    master_port: int = 0
