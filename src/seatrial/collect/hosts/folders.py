"""The hosts of an attempt: where each one's files lie, and which ranks it had.

In: an attempt's folder and its nodes.json. Out: `HostFolder`s, node 0 first, whose files lie in the attempt's own folder while those of
the others lie in nodes/<name>/. A run on one host has one folder without a name. Where nodes.json was never written, the folders below
nodes/ tell who was there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.paths import AttemptPaths
from seatrial.records.nodes import NodeRecord, NodesRecord


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
    names = node_names(attempt)
    with_log = [name for name in names if attempt.node(name).launcher_log.is_file()]
    first = [name for name in names if name not in with_log]
    yield (first[0] if len(first) == 1 else "head" if names else ""), attempt
    yield from ((name, attempt.node(name)) for name in with_log)


def node_names(attempt: AttemptPaths) -> list[str]:
    """The folders below nodes/; [] where there is none that can be read."""
    try:
        with os.scandir(attempt.nodes) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _is_name(name: str) -> bool:
    """Whether it can be the name of a folder: a damaged record must not lead out of the attempt."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


def node_of(nodes: NodesRecord | None, rank: int) -> NodeRecord | None:
    """The host that a rank ran on; None where that is not recorded."""
    found = nodes.nodes if nodes is not None else ()
    return next((node for node in found if node.first_rank <= rank < node.first_rank + node.ranks), None)
