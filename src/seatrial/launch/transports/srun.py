"""Agents on the other nodes of a Slurm job, by one srun per node within the allocation, so that Slurm knows every process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial.core.errors import LaunchError
from seatrial.launch.transports import ChildCommand, ChildProcess, Exit, RemoteCommand, StartRequest, describe_exit, end_children
from seatrial.records.plan import ContainerSpec

PROGRAM = "srun"


def container_options(container: ContainerSpec, campaign: Path) -> tuple[str, ...]:
    """Options of pyxis; agents read their orders in the campaign's folder."""
    mounts = tuple(dict.fromkeys([f"{campaign}:{campaign}", *container.mounts]))
    odd = next((mount for mount in mounts if "," in mount or mount.count(":") > 2 or re.search(r"\s", mount)), None)
    if odd is not None:
        raise LaunchError(f"'{odd}' cannot be mounted into a container: use folders without commas, colons and spaces")
    workdir = (f"--container-workdir={container.workdir}",) if container.workdir else ()
    return (f"--container-image={container.image}", f"--container-mounts={','.join(mounts)}", *workdir)


def srun_argv(host: str, argv: Sequence[str], environ: Mapping[str, str] = os.environ, options: Sequence[str] = ()) -> list[str]:
    """`--overlap`: the batch step and a cleanup share the node with it. srun does not inherit the job's number of CPUs."""
    cpus = _least_cpus(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    asked = [f"--cpus-per-task={cpus}"] if cpus else []
    layout = ["--nodes=1", "--ntasks=1", f"--nodelist={host}", "--overlap", "--mpi=none", "--cpu-bind=none"]
    return [PROGRAM, *layout, *asked, *options, *argv]


def _least_cpus(text: str) -> int:
    """The least of `64(x2),32`; 0 where unknown."""
    return min((int(number) for number in re.findall(r"(?:^|,)(\d+)", text)), default=0)


class SrunTransport:
    """An srun for each node."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        self._options = tuple(options)
        self._children: dict[str, ChildProcess] = {}
        self._commands: list[ChildProcess] = []

    def start(self, requests: Sequence[StartRequest]) -> None:
        for request in requests:
            self._children[request.host] = ChildProcess(srun_argv(request.host, request.argv, options=self._options), request.log)

    def exits(self) -> dict[str, Exit]:
        codes = {host: child.returncode for host, child in self._children.items()}
        return {host: describe_exit(PROGRAM, code) for host, code in codes.items() if code is not None}

    def run_command(self, request: StartRequest) -> RemoteCommand:
        self._commands.append(ChildProcess(srun_argv(request.host, request.argv, options=self._options), request.log))
        return ChildCommand(PROGRAM, self._commands[-1])

    def close(self, after_run: bool = True) -> None:
        end_children([*self._children.values(), *self._commands])
