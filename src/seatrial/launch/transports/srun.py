"""Agents on the other nodes of a Slurm job, by one srun a node: within the allocation, so that Slurm knows every process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from seatrial.launch.transports import ChildCommand, ChildProcess, Exit, RemoteCommand, StartRequest, describe_exit, end_children

PROGRAM = "srun"


def srun_argv(host: str, argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """`--overlap`: the batch step and a cleanup share the node with it. srun does not take over the job's number of CPUs by itself."""
    cpus = _least_cpus(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    asked = [f"--cpus-per-task={cpus}"] if cpus else []
    return [PROGRAM, "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--overlap", "--mpi=none", "--cpu-bind=none", *asked, *argv]


def _least_cpus(text: str) -> int:
    """Of `64(x2),32`; 0 where it is not known."""
    return min((int(number) for number in re.findall(r"(?:^|,)(\d+)", text)), default=0)


class SrunTransport:
    """An srun for each node."""

    def __init__(self) -> None:
        self._children: dict[str, ChildProcess] = {}
        self._commands: list[ChildProcess] = []

    def start(self, requests: Sequence[StartRequest]) -> None:
        for request in requests:
            self._children[request.host] = ChildProcess(srun_argv(request.host, request.argv), request.log)

    def exits(self) -> dict[str, Exit]:
        codes = {host: child.returncode for host, child in self._children.items()}
        return {host: describe_exit(PROGRAM, code) for host, code in codes.items() if code is not None}

    def run_command(self, request: StartRequest) -> RemoteCommand:
        self._commands.append(ChildProcess(srun_argv(request.host, request.argv), request.log))
        return ChildCommand(PROGRAM, self._commands[-1])

    def close(self, after_run: bool = True) -> None:
        end_children([*self._children.values(), *self._commands])
