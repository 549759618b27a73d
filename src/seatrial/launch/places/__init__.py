"""Where processes run: what a place gives to one run, and how its agents are started there.

with allocate(spec, attempt, should_stop=…) as allocated:
    orders = prepare_attempt(spec, attempt, allocated.allocation, os.environ)
    agents = allocated.start(orders)

With kind `slurm` this happens within the job (`slurm`), on the first of its nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seatrial.core.errors import LaunchError, did_you_mean
from seatrial.core.paths import AttemptPaths
from seatrial.launch.agents import AgentProcess, Agents
from seatrial.launch.places.allocation import allocate_local
from seatrial.launch.places.hosts import allocate_hosts
from seatrial.launch.transports.select import NodeStarter
from seatrial.records.launch import AgentOrder, Allocation
from seatrial.records.plan import PLACE_KINDS, RunSpec


@dataclass(frozen=True)
class AllocatedRun:
    """What a place gave to one run."""

    allocation: Allocation
    start: Callable[[Sequence[AgentOrder]], Agents]
    """Lets the run begin: one order per node, in the order of the allocation's."""
    via: str = ""
    """What started the agents: `pdsh`, `ssh`, `srun`, `pernode` or `here`; empty on one host."""
    why: str = ""
    """Why that one."""


@contextlib.contextmanager
def allocate(
    spec: RunSpec, attempt: AttemptPaths, *, pernode_server: NodeStarter | None = None, should_stop: Callable[[], bool] = lambda: False
) -> Iterator[AllocatedRun]:
    """What `spec` gets, until the block ends. HostError for a host that cannot be used, StoppedError when `should_stop` first."""
    if spec.place.kind not in PLACE_KINDS:
        raise LaunchError(f"unknown place '{spec.place.kind}'; {did_you_mean(spec.place.kind, PLACE_KINDS)}")
    if spec.place.traits.is_this_machine:
        with allocate_local(spec) as allocation:
            yield AllocatedRun(allocation, lambda orders: AgentProcess.start(attempt))
        return
    with allocate_hosts(spec, attempt, pernode_server, should_stop) as hosts:
        yield AllocatedRun(hosts.allocation, hosts.start, hosts.transports.via, hosts.transports.why)
