"""How the hosts' clocks stood to the harness's, as it was measured when the attempt began.

In: nodes.json. Out: how far the clock of a rank's host was ahead, and a caution where one was off by more than SKEW_S.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.collect.hosts.folders import node_of
from seatrial.records.caution import Caution
from seatrial.records.nodes import SKEW_S, NodesRecord
from seatrial.units import format_duration
from seatrial.wording import named


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
    told = named([f"{host} {_words(each_s)}" for host, each_s in off])
    yield Caution(
        kind="clock_skew",
        subject=run,
        numbers={"host": name, "seconds": round(skew_s, 3), "hosts": len(off)},
        text=f"Clocks of hosts were not the harness's: {told}. Times in this report are corrected by that; set the clocks (chrony, NTP), "
        "since logs and checkpoints still carry the wrong time.",
    )


def _words(skew_s: float) -> str:
    return f"{format_duration(abs(skew_s))} {'ahead' if skew_s > 0 else 'behind'}"
