"""Which variables reach the ranks, and who set each. Pure.

Variables come in layers, later ones win: the base environment, in which seatrial was started (recorded as `caller` where it can change a
run), Seatrial's variables, the place's, the plan's. `replaced` keeps a different value of the base environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.core.paths import AttemptPaths
from seatrial.machine.gpus import ACCELERATOR, CPU, CUDA_VISIBLE_DEVICES
from seatrial.machine.network import interface_variables
from seatrial.machine.provenance import is_recorded_variable, tuning_of
from seatrial.records import events
from seatrial.records.launch import Allocation, EnvironmentVariable
from seatrial.records.plan import RunSpec

# Variables of one host, terminal or process; and our own, which every agent sets anew. Also GPU selections: for another host `include`
# names GPUs, as with DeepSpeed's own launcher.
HOST_BOUND_PREFIXES = ("SEATRIAL_", "SSH_", "XDG_", "DBUS_", "TMUX", "WAYLAND_", "VSCODE_", "PMI_", "PMIX_", "OMPI_COMM_")
HOST_BOUND_NAMES = frozenset(
    {
        *("HOSTNAME", "HOST", "PWD", "OLDPWD", "SHLVL", "_", "DISPLAY", "XAUTHORITY", "WINDOWID", "STY", "TTY", "GPG_TTY", "TERM"),
        *("COLUMNS", "LINES", "LS_COLORS", "MAIL", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("SLURMD_NODENAME", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_TOPOLOGY_ADDR"),
    }
)


def environment(
    spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, base_env: Mapping[str, str]
) -> tuple[EnvironmentVariable, ...]:
    """Every recorded variable as the ranks get it, in name order."""
    final = {
        name: EnvironmentVariable(name=name, value=base_env[name], set_by="caller")
        for name in sorted(base_env)
        if is_recorded_variable(name)
    }
    for set_by, name, value in _layers(spec, allocation, attempt, base_env):
        replaced = base_env.get(name)
        final[name] = EnvironmentVariable(name=name, value=value, set_by=set_by, replaced=None if replaced == value else replaced)
    return tuple(final[name] for name in sorted(final))


def tuning_variables(spec: RunSpec, base_env: Mapping[str, str]) -> dict[str, str]:
    """The base environment's variables that tune this run, secrets masked; the plan's own are part of the run's hash."""
    return tuning_of(base_env, spec.env)


def _layers(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, base_env: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(set by, name, value), later ones win."""
    for name, value in probe_variables(spec, attempt).items():
        yield "seatrial", name, value
    if allocation.resume_from:
        yield "seatrial", events.ENV_RESUME_FROM, allocation.resume_from
    for name, value in _defaults(spec, allocation).items():
        if name not in base_env:
            yield "seatrial", name, value
    if spec.site is not None:
        for name, value in {**interface_variables(spec.site.interface), **spec.site.env}.items():
            yield "site", name, value
    # deepspeed sets it for its ranks from --include; if it were set for deepspeed too, it might refuse a second GPU.
    if allocation.devices and spec.launcher.kind != "deepspeed":
        yield "place", CUDA_VISIBLE_DEVICES, ",".join(allocation.devices)
    for name, value in interface_variables(spec.place.interface).items():
        yield "place", name, value
    for name, value in spec.env.items():
        yield "plan", name, value


def probe_variables(spec: RunSpec, attempt: AttemptPaths) -> dict[str, str]:
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


def portable_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The harness's variables that are sent to another host: all that are not bound to this one."""
    return {name: value for name, value in environ.items() if not name.startswith(HOST_BOUND_PREFIXES) and name not in HOST_BOUND_NAMES}


def _defaults(spec: RunSpec, allocation: Allocation) -> dict[str, str]:
    """Defaults, where the base environment does not set the variable."""
    # A buffered line arrives minutes late, and arrival times are how unmodified scripts are timed.
    # A process that neither answers the stack signal nor lets py-spy attach dumps its stacks at SIGABRT.
    defaults = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    if spec.workload.module:
        # A typing.py in the current folder must not shadow the library's.
        defaults["PYTHONSAFEPATH"] = "1"
    if allocation.local_ranks > 1:
        # Every rank would otherwise start a thread per core; torchrun sets the same, with a warning.
        defaults["OMP_NUM_THREADS"] = "1"
    if allocation.cpu_only and spec.launcher.kind == "deepspeed":
        # Otherwise it uses any accelerator it finds, also in a run that must leave the GPUs alone.
        defaults[ACCELERATOR] = CPU
    return defaults
