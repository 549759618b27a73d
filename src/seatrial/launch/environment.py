"""Which variables reach the ranks, and who set each.

Layers, later ones win: the caller's own environment (recorded where it can change a run), Seatrial's variables, the place's, the
plan's. A value that takes the place of a different one of the caller's keeps that one in `replaced`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.machine.deepspeed_devices import ACCELERATOR, CPU
from seatrial.machine.gpus import LIMIT
from seatrial.machine.nic_names import interface_variables
from seatrial.machine.recorded_variables import NOT_TUNING, TUNING_PREFIXES, is_recorded
from seatrial.machine.secrets import mask
from seatrial.paths import AttemptPaths
from seatrial.records import events
from seatrial.records.command import Allocation, EnvironmentVariable
from seatrial.records.run_spec import RunSpec

# What is true of one host, terminal or process alone; and our own, which every agent sets anew. The GPUs that were hidden here too:
# those of another host are named by `include`, as with DeepSpeed's own launcher.
HOST_BOUND_PREFIXES = ("SEATRIAL_", "SSH_", "XDG_", "DBUS_", "TMUX", "WAYLAND_", "VSCODE_", "PMI_", "PMIX_", "OMPI_COMM_")
HOST_BOUND_NAMES = frozenset(
    {
        *("HOSTNAME", "HOST", "PWD", "OLDPWD", "SHLVL", "_", "DISPLAY", "XAUTHORITY", "WINDOWID", "STY", "TTY", "GPG_TTY", "TERM"),
        *("COLUMNS", "LINES", "LS_COLORS", "MAIL", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("SLURMD_NODENAME", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_TOPOLOGY_ADDR"),
    }
)


def environment(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, caller: Mapping[str, str]) -> tuple[EnvironmentVariable, ...]:
    """Every recorded variable as the ranks get it, in name order."""
    final = {name: EnvironmentVariable(name=name, value=caller[name], set_by="caller") for name in sorted(caller) if is_recorded(name)}
    for set_by, name, value in _added(spec, allocation, attempt, caller):
        replaced = caller.get(name)
        final[name] = EnvironmentVariable(name=name, value=value, set_by=set_by, replaced=None if replaced == value else replaced)
    return tuple(final[name] for name in sorted(final))


def added(variables: tuple[EnvironmentVariable, ...]) -> dict[str, str]:
    """What is set on top of the caller's environment."""
    return {variable.name: variable.value for variable in variables if variable.set_by != "caller"}


def tuning_variables(spec: RunSpec, caller: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables that tune this run, secrets masked; those the plan sets are part of the run's own identity."""
    return {
        name: mask(name, value)
        for name, value in sorted(caller.items())
        if name.startswith(TUNING_PREFIXES) and name not in NOT_TUNING and name not in spec.env
    }


def _added(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, caller: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(who, name, value), later ones win."""
    for name, value in seatrial_variables(spec, attempt).items():
        yield "seatrial", name, value
    for name, value in _defaults(spec, allocation).items():
        if name not in caller:
            yield "seatrial", name, value
    # deepspeed sets it for its ranks, from --include. Set for itself too, it may find but one GPU and refuse to be told of a second.
    if allocation.devices and spec.launcher.kind != "deepspeed":
        yield "place", LIMIT, ",".join(allocation.devices)
    for name, value in interface_variables(spec.place.interface).items():
        yield "place", name, value
    for name, value in spec.env.items():
        yield "plan", name, value


def seatrial_variables(spec: RunSpec, attempt: AttemptPaths) -> dict[str, str]:
    """How the probe learns where it is."""
    return {
        events.ENV_RUN_DIR: str(attempt.folder),
        events.ENV_RUN: spec.run,
        events.ENV_ATTEMPT: str(attempt.number),
        events.ENV_RANK_SCOPE: spec.rank_scope,
        events.ENV_SYNC_TIMING: "1" if spec.timing.sync else "0",
        events.ENV_PHASE_EVERY: str(spec.timing.phase_every),
        events.ENV_TIMING_WINDOW: str(spec.timing.timing_window),
        events.ENV_STACK_SIGNAL: spec.limits.stack_signal or "none",
        events.ENV_ETA_MODE: spec.timing.eta_mode,
        events.ENV_ETA_MIN_SAMPLES: str(spec.timing.eta_min_samples),
    }


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the harness's own variables lies beneath those of the ranks on another host: all that do not belong to this one."""
    return {name: value for name, value in environ.items() if not name.startswith(HOST_BOUND_PREFIXES) and name not in HOST_BOUND_NAMES}


def _defaults(spec: RunSpec, allocation: Allocation) -> dict[str, str]:
    """What a caller who said nothing gets."""
    # A line that waits in a buffer arrives minutes late, and arrival times are how unmodified scripts are timed.
    # And a process that neither answers the stack signal nor can be looked into is made to tell its stacks by SIGABRT.
    wanted = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    if spec.workload.module:
        # A typing.py in the folder one happens to stand in must not take the place of the library's.
        wanted["PYTHONSAFEPATH"] = "1"
    if allocation.local_ranks > 1:
        # Every rank would otherwise start a thread a core; torchrun sets the same, with a warning.
        wanted["OMP_NUM_THREADS"] = "1"
    if allocation.cpu_only and spec.launcher.kind == "deepspeed":
        # It would look for every accelerator it knows, and on a host with GPUs take them for a run that is to leave them alone.
        wanted[ACCELERATOR] = CPU
    return wanted
