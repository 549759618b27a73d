"""Where processes run: what a place gives to one run, and how its agents are started there.

with allocate(spec, attempt, should_stop=…) as allocated:
    orders = prepare_attempt(spec, attempt, allocated.allocation, os.environ)
    agents = allocated.start(orders)

With kind `slurm` this happens within the job (`slurm`), on the first of its nodes. A place whose runs are jobs also is a `JobPlace`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seatrial.core.errors import LaunchError, did_you_mean
from seatrial.core.paths import AttemptPaths, JobPaths
from seatrial.launch.agents import AgentProcess, Agents
from seatrial.launch.places.allocation import allocate_local
from seatrial.launch.places.hosts import allocate_hosts
from seatrial.launch.transports.choice import NodeStarter
from seatrial.machine.slurm import Answer, Call, ScriptCall
from seatrial.records.job import JobStatus, Order, SubmittedJob
from seatrial.records.launch import AgentOrder, Allocation
from seatrial.records.plan import PLACE_KINDS, RunSpec


class JobPlace(Protocol):
    """A place whose runs are jobs that outlive the harness (`PlaceTraits.runs_in_jobs`): what the loops over jobs ask of it.

    The module `launch.places.slurm` is one. `call` runs the scheduler's programs where the default timeout would be too long.
    """

    def submit(self, paths: JobPaths, order: Order, program: str, call: ScriptCall | None = None) -> SubmittedJob | None:
        """Submit a job that runs the module `program`. None where the scheduler did not answer: it may have accepted the job. LaunchError
        where it refused the job."""

    def pick_up(self, paths: JobPaths, known: Mapping[str, JobStatus] | None = None) -> SubmittedJob | None:
        """The job that an earlier process submitted: from its folder, else from the jobs that the scheduler lists (`known`)."""

    def poll(self, call: Call | None = None) -> Mapping[str, JobStatus] | None:
        """Every job of this user, by id; None where the scheduler did not answer."""

    def cancel(self, job: str, call: Call | None = None) -> Answer:
        """Also ok where the job is over."""

    def final_state(self, job: str) -> JobStatus:
        """How a job ended that `poll` does not list any more."""


@dataclass(frozen=True)
class AllocatedRun:
    """What a place gave to one run."""

    allocation: Allocation
    start: Callable[[Sequence[AgentOrder]], Agents]
    """Starts the run, from one order per node, in the allocation's order of nodes."""
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
