"""No ssh: each node's own standing command (its share of the campaign) starts the agent when the gate tells it to.

In: what to start on which node. Out: why something there can no longer call, where its command says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from seatrial.launch.transports.transport import Ended, Errand, Start


class NodeStarter(Protocol):
    """What a run needs of node 0 of a campaign without ssh (`launch.gate.Gate`)."""

    nodes: tuple[str, ...]
    master_addr: str
    """Where node 0 is reached."""

    def start(self, node: str, argv: Sequence[str], env: Mapping[str, str], log: str) -> None:
        """Tell the node's share to start this."""

    def trouble(self, node: str) -> str:
        """Why what was started there can no longer call; empty while it may."""

    def python_of(self, node: str) -> str:
        """The interpreter that the node's share runs in; empty where it is not known."""


class _Entrusted:
    """An errand that a share was told of: what came of it stands in its log, and nowhere else."""

    def ended(self) -> Ended | None:
        return None

    def drop(self) -> None:
        """It ends by itself."""


class Pernode:
    """Starts by the gate."""

    kind = "pernode"

    def __init__(self, gate: NodeStarter) -> None:
        self._gate = gate
        self._started: list[str] = []

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self._gate.start(start.host, start.words, {}, str(start.log))
            self._started.append(start.host)

    def ended(self) -> dict[str, Ended]:
        troubles = {node: self._gate.trouble(node) for node in self._started}
        return {node: Ended(words=f"its own command says: {trouble}") for node, trouble in troubles.items() if trouble}

    def errand(self, start: Start) -> Errand:
        self._gate.start(start.host, start.words, {}, str(start.log))
        return _Entrusted()

    def close(self, after_run: bool = True) -> None:
        """Shares stand for the whole campaign."""
