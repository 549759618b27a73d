"""The launchers by name, and the one function that builds a run's command from its spec. Pure: nothing is looked up or started.

Each is a module with `words` (what is started), `overlays` (the variables of each process it starts, beside those all have) and
`rank_logs` (the folder in which its ranks write, None where their lines come through pipes).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from seatrial.errors import LaunchError, did_you_mean
from seatrial.launch.environment import added, environment
from seatrial.launch.launchers import command, deepspeed, python, torchrun
from seatrial.launch.nodes import own_paths
from seatrial.paths import AttemptPaths
from seatrial.records.command import Allocation, Command, Node
from seatrial.records.run_spec import RunSpec

LAUNCHERS: Mapping[str, ModuleType] = MappingProxyType({"python": python, "torchrun": torchrun, "deepspeed": deepspeed, "command": command})
_NOTHING: Mapping[str, str] = MappingProxyType({})


def command_for(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, caller: Mapping[str, str] = _NOTHING) -> Command:
    """The processes to start. `caller` is the environment beneath: a default of ours gives way to what it already sets."""
    launcher = launcher_of(spec)
    env = added(environment(spec, allocation, attempt, caller))
    return Command(
        argv=launcher.words(spec, allocation, attempt, {**caller, **env}),
        env=env,
        cwd=spec.cwd,
        ranks=launcher.overlays(spec, allocation),
    )


def given_to_ranks(spec: RunSpec, allocation: Allocation, variables: Mapping[str, str]) -> dict[str, str]:
    """What the launcher's own program sets for every rank in the place of `variables`, to be written down."""
    return deepspeed.given_to_ranks(allocation, variables) if launcher_of(spec) is deepspeed else {}


def rank_logs_for(spec: RunSpec, attempt: AttemptPaths, node: Node | None = None) -> str | None:
    """Where the launcher redirects each rank's output, None when the agent gets it through pipes."""
    folder: str | None = launcher_of(spec).rank_logs(spec, own_paths(attempt, node))
    return folder


def launcher_of(spec: RunSpec) -> ModuleType:
    kind = spec.launcher.kind
    if kind not in LAUNCHERS:
        raise LaunchError(f"launcher '{kind}' is not known; {did_you_mean(kind, LAUNCHERS)}")
    return LAUNCHERS[kind]
