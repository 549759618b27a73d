"""`torchrun`: one process that starts the ranks, each with its output in files of its own under attempt-N/ranks/.

An option the user typed stands; Seatrial adds only what is missing: number of ranks and of nodes, a held port, where ranks write. On
many hosts one runs on each, and they meet at node 0's.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from pathlib import Path

from seatrial.launch.launchers.workload import workload_words
from seatrial.launch.nodes import own_paths
from seatrial.options.torchrun import values_in
from seatrial.paths import AttemptPaths
from seatrial.records.command import Allocation
from seatrial.records.run_spec import RunSpec

# Whoever types one of these has a rendezvous of their own.
RENDEZVOUS_OPTIONS = ("standalone", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf")


def words(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
    program = spec.launcher.program or (spec.place.python or sys.executable, "-m", "torch.distributed.run")
    typed = values_in(spec.launcher.args)
    return (
        *program,
        *_size(typed, allocation),
        *_rendezvous(typed, allocation),
        *_logs(typed, own_paths(attempt, allocation.node)),
        *spec.launcher.args,
        *workload_words(spec, attempt),
    )


def overlays(spec: RunSpec, allocation: Allocation) -> tuple[dict[str, str], ...]:
    """torchrun gives each rank its variables itself."""
    return ({},)


def rank_logs(spec: RunSpec, attempt: AttemptPaths) -> str | None:
    """The folder whose files the agent merges; None when torchrun copies the ranks' lines to its own output (`--tee`)."""
    typed = values_in(spec.launcher.args)
    if "tee" in typed:
        return None
    return str(Path(spec.cwd) / typed["log_dir"]) if "log_dir" in typed else str(attempt.rank_logs)


def _size(typed: Container[str], allocation: Allocation) -> tuple[str, ...]:
    nodes = () if "nnodes" in typed else ("--nnodes", str(len(allocation.nodes) or 1))
    if allocation.node and "node_rank" not in typed:
        nodes = (*nodes, "--node-rank", str(allocation.node.node_rank))
    return nodes if "nproc_per_node" in typed else (*nodes, "--nproc-per-node", str(allocation.local_ranks))


def _rendezvous(typed: Container[str], allocation: Allocation) -> tuple[str, ...]:
    if any(name in typed for name in RENDEZVOUS_OPTIONS):
        return ()
    return ("--master-addr", allocation.master_addr, "--master-port", str(allocation.master_port))


def _logs(typed: Container[str], attempt: AttemptPaths) -> tuple[str, ...]:
    folder = () if "log_dir" in typed else ("--log-dir", str(attempt.rank_logs))
    return folder if "redirects" in typed or "tee" in typed else (*folder, "--redirects", "3")
