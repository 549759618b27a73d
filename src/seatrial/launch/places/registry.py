"""The places by name: what a run gets, and how its agents are started there.

with take(spec, attempt, should_stop=…) as taken:
    orders = prepare_all(spec, attempt, taken.allocation, os.environ)
    agents = taken.start(orders)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seatrial.errors import LaunchError, did_you_mean
from seatrial.launch.agent_process import AgentProcess
from seatrial.launch.agents import Agents
from seatrial.launch.places.hosts import take_hosts
from seatrial.launch.places.local import allocate
from seatrial.launch.transports.pernode import NodeStarter
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentOrder, Allocation
from seatrial.records.run_spec import HOSTFILE, LOCAL, PERNODE, RunSpec

KINDS = (LOCAL, HOSTFILE, PERNODE)


@dataclass(frozen=True)
class Taken:
    """What a place gave to one run."""

    allocation: Allocation
    start: Callable[[Sequence[AgentOrder]], Agents]
    """Lets the run begin: one order a node, in the order of the allocation's."""
    via: str = ""
    """What started the agents: `pdsh`, `ssh`, `pernode` or `here`; empty on one host."""
    why: str = ""
    """Why that one, in words."""


@contextlib.contextmanager
def take(
    spec: RunSpec, attempt: AttemptPaths, *, gate: NodeStarter | None = None, should_stop: Callable[[], bool] = lambda: False
) -> Iterator[Taken]:
    """What `spec` gets, until the block ends. HostError for a host that cannot be had, StoppedError when `should_stop` first."""
    if spec.place.kind not in KINDS:
        raise LaunchError(f"place '{spec.place.kind}' is not known; {did_you_mean(spec.place.kind, KINDS)}")
    if spec.place.kind == LOCAL:
        with allocate(spec) as allocation:
            yield Taken(allocation, lambda orders: AgentProcess.start(attempt))
        return
    with take_hosts(spec, attempt, gate, should_stop) as hosts:
        yield Taken(hosts.allocation, hosts.start, hosts.chosen.via, hosts.chosen.why)
