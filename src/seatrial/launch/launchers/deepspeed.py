"""`deepspeed`: a runner that starts a launcher that starts the ranks, each with its output in a file of its own under attempt-N/ranks/.

An option the user typed stands; Seatrial adds only what is missing: which devices, a held port, where ranks write, and which hosts. On
one host the runner is told of no hostfile: it would silently take one that lies at /job/hostfile. On many, one runs on each, told by
`--no_ssh --node_rank` to start that host's ranks alone: nothing then depends on what pdsh lets through.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from pathlib import Path

from seatrial.errors import LaunchError
from seatrial.hostfile import include_text
from seatrial.launch.launchers.workload import workload_words
from seatrial.launch.nodes import own_paths
from seatrial.machine.deepspeed_devices import gpu_numbers
from seatrial.machine.gpus import LIMIT
from seatrial.options.deepspeed import values_in
from seatrial.paths import AttemptPaths
from seatrial.records.command import Allocation
from seatrial.records.run_spec import RunSpec

# No plain file, so the runner takes it for missing and stays on this host, whatever lies where it looks by itself.
NO_HOSTFILE = "/dev/null"
# The word by which its user says that ranks are to write to the common output.
NO_RANK_LOGS = "None"


def words(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
    program = spec.launcher.program or (spec.place.python or sys.executable, "-m", "deepspeed.launcher.runner")
    typed = values_in(spec.launcher.args)
    return (
        *program,
        *_hosts(allocation, attempt, variables),
        *_meeting(typed, allocation),
        *_logs(typed, own_paths(attempt, allocation.node)),
        *spec.launcher.args,
        *_workload(spec, attempt),
    )


def overlays(spec: RunSpec, allocation: Allocation) -> tuple[dict[str, str], ...]:
    """deepspeed gives each rank its variables itself."""
    return ({},)


def given_to_ranks(allocation: Allocation, variables: Mapping[str, str]) -> dict[str, str]:
    """Of the variables that deepspeed sets, the one that takes the place of the caller's: for the record."""
    numbers = () if allocation.nodes else _numbers(allocation, variables)
    return {LIMIT: ",".join(numbers or allocation.devices or map(str, range(allocation.local_ranks)))}


def rank_logs(spec: RunSpec, attempt: AttemptPaths) -> str | None:
    """The folder whose files the agent merges; None when the user wants all ranks in deepspeed's own output."""
    typed = values_in(spec.launcher.args).get("enable_each_rank_log", str(attempt.rank_logs))
    return None if typed == NO_RANK_LOGS else str(Path(spec.cwd) / typed)


def _hosts(allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
    if allocation.node is None:
        return ("--hostfile", NO_HOSTFILE, *_devices(allocation, variables))
    chosen = include_text(allocation.nodes)
    include = ("--include", chosen) if chosen else ()
    return ("--hostfile", str(attempt.hostfile), *include, "--no_ssh", "--node_rank", str(allocation.node.node_rank))


def _devices(allocation: Allocation, variables: Mapping[str, str]) -> tuple[str, ...]:
    numbers = _numbers(allocation, variables)
    return ("--include", f"localhost:{','.join(numbers)}") if numbers else ("--num_gpus", str(allocation.ranks))


def _numbers(allocation: Allocation, variables: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return gpu_numbers(allocation.devices, allocation.ranks, variables)
    except ValueError as error:
        raise LaunchError(f"{error}; name GPUs by number in place.include, as in localhost:0,1") from error


def _meeting(typed: Container[str], allocation: Allocation) -> tuple[str, ...]:
    # On one host the runner takes 127.0.0.1 whatever it is told.
    address = ("--master_addr", allocation.master_addr) if allocation.node and "master_addr" not in typed else ()
    return address if "master_port" in typed else (*address, "--master_port", str(allocation.master_port))


def _logs(typed: Container[str], attempt: AttemptPaths) -> tuple[str, ...]:
    return () if "enable_each_rank_log" in typed else ("--enable_each_rank_log", str(attempt.rank_logs))


def _workload(spec: RunSpec, attempt: AttemptPaths) -> tuple[str, ...]:
    """A bundled workload reads LOCAL_RANK and takes no --local_rank=N; the user's script gets it, as DeepSpeed's users expect."""
    if not spec.workload.module:
        return workload_words(spec, attempt)
    _, *module = workload_words(spec, attempt)
    return ("--no_local_rank", "--module", *module)
