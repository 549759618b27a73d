"""The built-in launchers `python`, `torchrun`, `deepspeed` and `command`: argv and the variables of their processes.

An option that the user typed is kept; Seatrial adds only what is missing: ranks, devices, hosts, a reserved port, rank log folders.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from pathlib import Path

from seatrial.core.errors import LaunchError
from seatrial.core.hostfile import include_text
from seatrial.core.launcher_options import DEEPSPEED, TORCHRUN
from seatrial.core.paths import AttemptPaths
from seatrial.launch.launchers import Launcher, node_paths, workload_arguments
from seatrial.machine.gpus import CUDA_VISIBLE_DEVICES, deepspeed_gpu_indices
from seatrial.records.launch import Allocation
from seatrial.records.plan import RunSpec

# A user who types one of these sets up the rendezvous.
TORCHRUN_RENDEZVOUS = ("standalone", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf")
# Not a regular file, so the runner ignores it, and its default path, and stays on this host.
NO_HOSTFILE = "/dev/null"
# The value with which a user asks for all ranks in the common output.
NO_RANK_LOGS = "None"


class PythonLauncher(Launcher):
    """One process per rank, with the variables that torch's `env://` rendezvous reads; the agent writes their logs itself."""

    def argv(self, spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
        program = spec.launcher.program or (spec.place.python or sys.executable,)
        return (*program, *spec.launcher.args, *workload_arguments(spec, attempt))

    def rank_variables(self, spec: RunSpec, allocation: Allocation) -> tuple[dict[str, str], ...]:
        """None for a single process, which then runs as it would without Seatrial."""
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


class CommandLauncher(Launcher):
    """A program as typed, which may start ranks itself."""

    def argv(self, spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
        if len(allocation.nodes) > 1:
            raise LaunchError("launcher 'command' starts one program on one host: on many use python, torchrun or deepspeed")
        if spec.workload.module and not spec.launcher.program:
            raise LaunchError(
                f"workload '{spec.workload.name}' is a Python module and launcher 'command' starts programs: "
                "use launcher 'python', 'torchrun' or 'deepspeed', or name the interpreter as its program"
            )
        typed = (*spec.launcher.program, *spec.launcher.args, *workload_arguments(spec, attempt))
        if not typed:
            raise LaunchError(f"run {spec.run} has nothing to start: give workload.script, or a command after --")
        return typed


class TorchrunLauncher(Launcher):
    """One process per host that starts the ranks, each with its own output files; the rendezvous is at node 0."""

    def argv(self, spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
        program = spec.launcher.program or (spec.place.python or sys.executable, "-m", "torch.distributed.run")
        added = _torchrun_options(TORCHRUN.values(spec.launcher.args), allocation, node_paths(attempt, allocation.node))
        return (*program, *added, *spec.launcher.args, *workload_arguments(spec, attempt))

    def rank_log_folder(self, spec: RunSpec, attempt: AttemptPaths) -> str | None:
        """None where torchrun copies the ranks' lines to its own output (`--tee`)."""
        typed = TORCHRUN.values(spec.launcher.args)
        if "tee" in typed:
            return None
        return str(Path(spec.cwd) / typed["log_dir"]) if "log_dir" in typed else str(attempt.rank_logs)


def _torchrun_options(typed: Container[str], allocation: Allocation, own: AttemptPaths) -> list[str]:
    added: list[str] = []
    if "nnodes" not in typed:
        added += ["--nnodes", str(len(allocation.nodes) or 1)]
    if allocation.node and "node_rank" not in typed:
        added += ["--node-rank", str(allocation.node.node_rank)]
    if "nproc_per_node" not in typed:
        added += ["--nproc-per-node", str(allocation.local_ranks)]
    if not any(name in typed for name in TORCHRUN_RENDEZVOUS):
        added += ["--master-addr", allocation.master_addr, "--master-port", str(allocation.master_port)]
        if allocation.rendezvous_id:
            added += ["--rdzv-id", allocation.rendezvous_id]
    if "log_dir" not in typed:
        added += ["--log-dir", str(own.rank_logs)]
    if "redirects" not in typed and "tee" not in typed:
        added += ["--redirects", "3"]
    return added


class DeepspeedLauncher(Launcher):
    """A runner that starts a launcher that starts the ranks, each with its own output file.

    On one host the runner gets no hostfile: it would silently use one at /job/hostfile. On many, each host runs one with `--no_ssh
    --node_rank` for its own ranks: nothing then depends on pdsh's environment.
    """

    def argv(self, spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
        program = spec.launcher.program or (spec.place.python or sys.executable, "-m", "deepspeed.launcher.runner")
        hosts = _deepspeed_hosts(allocation, attempt, variables)
        added = _deepspeed_options(DEEPSPEED.values(spec.launcher.args), allocation, node_paths(attempt, allocation.node))
        workload = workload_arguments(spec, attempt)
        if spec.workload.module:
            # A bundled workload reads LOCAL_RANK and takes no --local_rank=N; the user's script gets it, as DeepSpeed's users expect.
            workload = ("--no_local_rank", "--module", *workload[1:])
        return (*program, *hosts, *added, *spec.launcher.args, *workload)

    def rank_log_folder(self, spec: RunSpec, attempt: AttemptPaths) -> str | None:
        """None where the user wants all ranks in deepspeed's own output."""
        typed = DEEPSPEED.values(spec.launcher.args).get("enable_each_rank_log", str(attempt.rank_logs))
        return None if typed == NO_RANK_LOGS else str(Path(spec.cwd) / typed)

    def variables_set_for_ranks(self, allocation: Allocation, variables: Mapping[str, str]) -> dict[str, str]:
        indices = () if allocation.nodes else _gpu_indices(allocation, variables)
        return {CUDA_VISIBLE_DEVICES: ",".join(indices or allocation.devices or map(str, range(allocation.local_ranks)))}


def _deepspeed_hosts(allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
    if allocation.node is None:
        indices = _gpu_indices(allocation, variables)
        devices = ("--include", f"localhost:{','.join(indices)}") if indices else ("--num_gpus", str(allocation.ranks))
        return ("--hostfile", NO_HOSTFILE, *devices)
    chosen = include_text(allocation.nodes)
    include = ("--include", chosen) if chosen else ()
    return ("--hostfile", str(attempt.hostfile), *include, "--no_ssh", "--node_rank", str(allocation.node.node_rank))


def _gpu_indices(allocation: Allocation, variables: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return deepspeed_gpu_indices(allocation.devices, allocation.ranks, variables)
    except ValueError as error:
        raise LaunchError(f"{error}; name GPUs by number in place.include, as in localhost:0,1") from error


def _deepspeed_options(typed: Container[str], allocation: Allocation, own: AttemptPaths) -> list[str]:
    added: list[str] = []
    # On one host the runner always uses 127.0.0.1.
    if allocation.node and "master_addr" not in typed:
        added += ["--master_addr", allocation.master_addr]
    if "master_port" not in typed:
        added += ["--master_port", str(allocation.master_port)]
    if "enable_each_rank_log" not in typed:
        added += ["--enable_each_rank_log", str(own.rank_logs)]
    return added
