"""OUT/.gate.json: how the commands of a campaign without ssh find each other in the folder that they share.

Node 0 writes it and removes it at its end; it holds the token of the line, so only its owner may read it. What a dead campaign left is
told by nobody answering at its port, not by its age: clocks of hosts differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial import files
from seatrial.errors import CampaignError
from seatrial.machine.interfaces import interfaces, is_loopback
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import described, to_json
from seatrial.records.line import Call

# Time for a person to walk from terminal to terminal: so long node 0 waits for the others, and they for it.
PATIENCE_S = 600.0
SAY_EVERY_S = 10.0
DIGEST_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class GateFile:
    """Where node 0 listens, and what proves that one has read this."""

    token: str
    addresses: tuple[str, ...]
    """Of node 0, the one that the user named first."""
    port: int
    since_t: float = 0.0
    plan: str = ""
    host: str = ""

    def call(self, node: str, first: str = "") -> Call:
        """How `node` calls it; `first` is an address to try before the others."""
        addresses = tuple(dict.fromkeys(filter(None, (first, *self.addresses))))
        return Call(addresses=addresses, port=self.port, token=self.token, node=node)


def node_names(count: int) -> tuple[str, ...]:
    """`node0`, `node1` and on: there is no hostfile that names them."""
    return tuple(f"node{rank}" for rank in range(count))


def plan_digest(plan: CampaignPlan) -> str:
    """The same on two nodes where they would run the same: every run with its hash, scripts and settings included, on as many nodes.

    Where it is written, how long it may take and which runs were chosen is node 0's to say.
    """
    what = [plan.name, [[spec.run, spec.hash, spec.place.nodes] for spec in plan.runs]]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:DIGEST_DIGITS]


def write_gate(paths: CampaignPaths, addresses: Sequence[str], port: int, token: str, plan: str) -> None:
    """Let the others find us."""
    stored = GateFile(token=token, addresses=tuple(addresses), port=port, since_t=time.time(), plan=plan, host=socket.gethostname())
    try:
        files.write_private_json(paths.gate, to_json(stored))
    except OSError as error:
        raise CampaignError(f"{paths.gate} cannot be written ({error.strerror}): the commands on the other nodes need it") from error


def read_gate(paths: CampaignPaths) -> GateFile | None:
    """What lies there, where it is ours or the folder's owner's to write: who writes it tells this host what to start."""
    with contextlib.suppress(OSError):
        trusted = {os.geteuid(), paths.folder.stat().st_uid}
        if paths.gate.lstat().st_uid in trusted:
            return described(GateFile, files.read_json(paths.gate))
    return None


def remove_gate(paths: CampaignPaths, token: str) -> None:
    """Take it away, unless a later campaign has put its own there."""
    with contextlib.suppress(OSError):
        present = read_gate(paths)
        if present is not None and present.token == token:
            paths.gate.unlink(missing_ok=True)


def own_addresses(named: str) -> list[str]:
    """The address that the user named, then all others of this host: a name may resolve to loopback, or to a network nobody else is on."""
    found = [address for addresses in interfaces().values() for address in addresses]
    return list(dict.fromkeys([named, *(address for address in found if not is_loopback(address) and ":" not in address)]))
