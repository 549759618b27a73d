"""`command`: the program as typed, one process; whatever it starts by itself is its own affair."""

from __future__ import annotations

from collections.abc import Mapping

from seatrial.errors import LaunchError
from seatrial.launch.launchers.workload import workload_words
from seatrial.paths import AttemptPaths
from seatrial.records.command import Allocation
from seatrial.records.run_spec import RunSpec


def words(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
    if allocation.nodes:
        raise LaunchError("launcher 'command' starts one program on this machine: on many hosts use python, torchrun or deepspeed")
    if spec.workload.module and not spec.launcher.program:
        raise LaunchError(
            f"workload '{spec.workload.name}' is a Python module and launcher 'command' starts programs: "
            "use launcher 'python', 'torchrun' or 'deepspeed', or name the interpreter as its program"
        )
    typed = (*spec.launcher.program, *spec.launcher.args, *workload_words(spec, attempt))
    if not typed:
        raise LaunchError(f"run {spec.run} has nothing to start: give workload.script, or a command after --")
    return typed


def overlays(spec: RunSpec, allocation: Allocation) -> tuple[dict[str, str], ...]:
    return ({},)


def rank_logs(spec: RunSpec, attempt: AttemptPaths) -> str | None:
    return None
