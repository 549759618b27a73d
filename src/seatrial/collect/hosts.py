"""The hosts of an attempt: where each one's files lie, and how its clock stood to the harness's.

In: an attempt's folder and its nodes.json. Out: `HostFolder`s, node 0 first, whose files lie in the attempt's own folder while those of
the others lie in nodes/<name>/; and times of any host as the harness's clock would have told them. A run on one host has one folder
without a name. Where nodes.json was never written, the folders below nodes/ tell who was there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.paths import AttemptPaths
from seatrial.records.caution import Caution
from seatrial.records.nodes import NodeRecord, NodesRecord
from seatrial.units import format_duration

SKEW_S = 1.0
"""Less is what a time service leaves, and no more than half a sample's interval."""
MOST_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class HostFolder:
    """One host's files."""

    name: str
    """As the hostfile has it; empty for a run on one host."""
    paths: AttemptPaths
    offset_s: float = 0.0
    """How far its clock was ahead of the harness's; 0 where that was not measured."""


def host_folders(attempt: AttemptPaths, nodes: NodesRecord | None) -> list[HostFolder]:
    """All of them, node 0 first."""
    if nodes is None or len(nodes.nodes) == 0:
        return [HostFolder(name=name, paths=paths) for name, paths in _found(attempt)]
    named = [node for node in sorted(nodes.nodes, key=lambda node: node.node_rank) if _is_name(node.name)]
    return [
        HostFolder(name=node.name, paths=attempt.node(node.name) if node.node_rank else attempt, offset_s=node.clock_offset_s or 0.0)
        for node in named
    ]


def _found(attempt: AttemptPaths) -> Iterator[tuple[str, AttemptPaths]]:
    """Without the record: the folder whose agent wrote no log there is node 0's."""
    try:
        with os.scandir(attempt.nodes) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        names = []
    with_log = [name for name in names if attempt.node(name).launcher_log.is_file()]
    first = [name for name in names if name not in with_log]
    yield (first[0] if len(first) == 1 else "head" if names else ""), attempt
    yield from ((name, attempt.node(name)) for name in with_log)


def _is_name(name: str) -> bool:
    """Whether it can be the name of a folder: a damaged record must not lead out of the attempt."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


def node_of(nodes: NodesRecord | None, rank: int) -> NodeRecord | None:
    """The host that a rank ran on; None where that is not recorded."""
    found = nodes.nodes if nodes is not None else ()
    return next((node for node in found if node.first_rank <= rank < node.first_rank + node.ranks), None)


def offset_of(nodes: NodesRecord | None, rank: int) -> float:
    """How far the clock of a rank's host was ahead of the harness's; 0 where that is not known."""
    node = node_of(nodes, rank)
    return node.clock_offset_s or 0.0 if node is not None else 0.0


def skew_cautions(run: str, nodes: NodesRecord | None) -> Iterator[Caution]:
    """What to say of clocks that were off by more than a second: one caution, whatever the number of hosts."""
    skews = {node.name: node.clock_offset_s for node in (nodes.nodes if nodes else ()) if node.clock_offset_s is not None}
    off = sorted(((name, skew_s) for name, skew_s in skews.items() if abs(skew_s) > SKEW_S), key=lambda item: -abs(item[1]))
    if not off:
        return
    name, skew_s = off[0]
    more = len(off) - MOST_NAMED
    told = ", ".join(f"{host} {_words(each_s)}" for host, each_s in off[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    yield Caution(
        kind="clock_skew",
        subject=run,
        numbers={"host": name, "seconds": round(skew_s, 3), "hosts": len(off)},
        text=f"Clocks of hosts were not the harness's: {told}. Times in this report are corrected by that; set the clocks (chrony, NTP), "
        "since logs and checkpoints still carry the wrong time.",
    )


def _words(skew_s: float) -> str:
    return f"{format_duration(abs(skew_s))} {'ahead' if skew_s > 0 else 'behind'}"
