"""`python`: one process a rank, each told its place by the variables torch's `env://` rendezvous reads."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from seatrial.launch.launchers.workload import workload_words
from seatrial.paths import AttemptPaths
from seatrial.records.command import Allocation
from seatrial.records.run_spec import RunSpec


def words(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
    program = spec.launcher.program or (spec.place.python or sys.executable,)
    return (*program, *spec.launcher.args, *workload_words(spec, attempt))


def overlays(spec: RunSpec, allocation: Allocation) -> tuple[dict[str, str], ...]:
    """One set of variables a rank; none for a single process, which then runs as it would without Seatrial."""
    if allocation.ranks == 1:
        return ({},)
    rendezvous = {"MASTER_ADDR": allocation.master_addr, "MASTER_PORT": str(allocation.master_port)}
    shared = {name: value for name, value in rendezvous.items() if name not in spec.env}
    first = allocation.node.first_rank if allocation.node else 0
    world, local_world = str(allocation.ranks), str(allocation.local_ranks)
    return tuple(
        {"RANK": str(first + local), "LOCAL_RANK": str(local), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": local_world, **shared}
        for local in range(allocation.local_ranks)
    )


def rank_logs(spec: RunSpec, attempt: AttemptPaths) -> str | None:
    """The agent itself writes each rank's log; there is nothing to follow."""
    return None
