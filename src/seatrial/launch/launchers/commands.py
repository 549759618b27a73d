"""The command of a run: argv by its launcher, and which variables reach the ranks and who set each. Pure.

Variables come in layers, later ones win: the base environment, which seatrial was started in (recorded as `caller` where it can change a
run), Seatrial's variables, the place's, the plan's. A value that replaces a different one of the base environment keeps that one in
`replaced`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from seatrial.core.errors import LaunchError, did_you_mean
from seatrial.core.paths import AttemptPaths
from seatrial.core.shell import ACTIVATED_LINE
from seatrial.launch.launchers import Launcher, node_paths
from seatrial.launch.launchers.kinds import CommandLauncher, DeepspeedLauncher, PythonLauncher, TorchrunLauncher
from seatrial.machine.gpus import ACCELERATOR, CPU, CUDA_VISIBLE_DEVICES
from seatrial.machine.network import interface_variables
from seatrial.machine.provenance import is_recorded_variable, tuning_of
from seatrial.records import events
from seatrial.records.launch import Allocation, Command, EnvironmentVariable, Node
from seatrial.records.plan import RunSpec, SiteSpec

LAUNCHERS: Mapping[str, Launcher] = MappingProxyType(
    {
        "python": PythonLauncher(),
        "torchrun": TorchrunLauncher(),
        "deepspeed": DeepspeedLauncher(),
        "command": CommandLauncher(),
    }
)
# Names that a shell accepts; a process may have variables with any other, and those reach the ranks but no script.
SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SOURCES_UNKNOWN = "# shellcheck disable=SC1090,SC1091"
"""Before the first command of a script that a site's lines are in: what they read is not here."""
_NOTHING: Mapping[str, str] = MappingProxyType({})

# Variables of one host, terminal or process alone; and our own, which every agent sets anew. Hidden GPUs too: those of another host are
# named by `include`, as with DeepSpeed's own launcher.
HOST_BOUND_PREFIXES = ("SEATRIAL_", "SSH_", "XDG_", "DBUS_", "TMUX", "WAYLAND_", "VSCODE_", "PMI_", "PMIX_", "OMPI_COMM_")
HOST_BOUND_NAMES = frozenset(
    {
        *("HOSTNAME", "HOST", "PWD", "OLDPWD", "SHLVL", "_", "DISPLAY", "XAUTHORITY", "WINDOWID", "STY", "TTY", "GPG_TTY", "TERM"),
        *("COLUMNS", "LINES", "LS_COLORS", "MAIL", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("SLURMD_NODENAME", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_TOPOLOGY_ADDR"),
    }
)


def command_for(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, base_env: Mapping[str, str] = _NOTHING) -> Command:
    """The processes to start. `base_env` is the environment beneath: a default of ours gives way to what it already sets."""
    launcher = launcher_of(spec)
    env = {one.name: one.value for one in environment(spec, allocation, attempt, base_env) if one.set_by != "caller"}
    return Command(
        argv=launcher.argv(spec, allocation, attempt, {**base_env, **env}),
        env=env,
        cwd=spec.cwd,
        ranks=launcher.rank_variables(spec, allocation),
    )


def activation_lines(site: SiteSpec | None) -> Iterator[str]:
    """The site's own lines of bash. One that fails ends the shell, and is named by its number: its text may hold a secret."""
    if site is None or not site.activate:
        return
    yield f"# From {site.source}. Scripts that activate an environment often use variables that are not set."
    yield "set +u"
    yield f"seatrial_site={shlex.quote(site.source)}"
    yield "seatrial_failed() {"
    yield f'  echo "seatrial: item $seatrial_item{ACTIVATED_LINE}$seatrial_site failed with exit code $1" >&2'
    yield '  exit "$(($1 ? $1 : 1))"'
    yield "}"
    yield "trap 'seatrial_failed $?' EXIT"
    for position, line in enumerate(site.activate, start=1):
        yield f"seatrial_item={position}"
        yield line
    yield "trap - EXIT"
    yield "set -u"


def activation_script(site: SiteSpec, kept: Iterable[str]) -> str:
    """activate.sh, which starts the command in its arguments after the site's lines. The variables `kept` are as before: what the plan says
    counts first."""
    names = " ".join(sorted(name for name in kept if SHELL_NAME.fullmatch(name)))
    lines = [
        "#!/usr/bin/env bash",
        SOURCES_UNKNOWN,
        "set -euo pipefail",
        f"seatrial_kept=$(declare -p {names} 2>/dev/null || true)" if names else "seatrial_kept=",
        *activation_lines(site),
        'eval "$seatrial_kept"',
        'exec "$@"',
    ]
    return "".join(f"{line}\n" for line in lines)


def rank_log_folder(spec: RunSpec, attempt: AttemptPaths, node: Node | None = None) -> str | None:
    """Where the launcher redirects each rank's output, None when the agent gets it through pipes."""
    return launcher_of(spec).rank_log_folder(spec, node_paths(attempt, node))


def variables_set_by_launcher(spec: RunSpec, allocation: Allocation, variables: Mapping[str, str]) -> dict[str, str]:
    return launcher_of(spec).variables_set_for_ranks(allocation, variables)


def launcher_of(spec: RunSpec) -> Launcher:
    kind = spec.launcher.kind
    if kind not in LAUNCHERS:
        raise LaunchError(f"unknown launcher '{kind}'; {did_you_mean(kind, LAUNCHERS)}")
    return LAUNCHERS[kind]


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
    """The base environment's variables that tune this run, secrets masked; those the plan sets are part of the run's own identity."""
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
    # deepspeed sets it for its ranks, from --include. Set for itself too, it may find but one GPU and refuse a second.
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
    """The harness's own variables that go along to another host: all that are not bound to this one."""
    return {name: value for name, value in environ.items() if not name.startswith(HOST_BOUND_PREFIXES) and name not in HOST_BOUND_NAMES}


def _defaults(spec: RunSpec, allocation: Allocation) -> dict[str, str]:
    """Set where the base environment sets nothing."""
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
