"""How an outcome speaks of the host on which a run broke. Pure: words and a host in, words out; on one host everything stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.paths import ATTEMPT_FILES
from seatrial.records.nodes import NodeRecord


def host_of_rank(nodes: Sequence[NodeRecord], rank: int | None) -> str:
    """The host that had this rank; empty where that is not known."""
    if rank is None:
        return ""
    return next((node.name for node in nodes if node.first_rank <= rank < node.first_rank + node.ranks), "")


def with_host(detail: str, host: str) -> str:
    """What happened, and where."""
    return f"on {host}: {detail}" if host and detail and host not in detail else detail


def with_its_log(action: str, host: str, nodes: Sequence[NodeRecord]) -> str:
    """Advice that sends people to the log of the host that broke: launcher.log itself is the first host's."""
    first = next((node.name for node in nodes if node.node_rank == 0), "")
    return action.replace(ATTEMPT_FILES.launcher_log.name, str(ATTEMPT_FILES.node(host).launcher_log)) if host and host != first else action
