"""The command of a run: argv by its launcher, which is chosen here and builds it in `built_in`, and the script that starts it after a
site's lines. Pure; the variables of the ranks come from `environment`.
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
from seatrial.launch.launchers.built_in import CommandLauncher, DeepspeedLauncher, PythonLauncher, TorchrunLauncher
from seatrial.launch.launchers.environment import environment
from seatrial.records.launch import Allocation, Command, Node
from seatrial.records.plan import RunSpec, SiteSpec

LAUNCHERS: Mapping[str, Launcher] = MappingProxyType(
    {
        "python": PythonLauncher(),
        "torchrun": TorchrunLauncher(),
        "deepspeed": DeepspeedLauncher(),
        "command": CommandLauncher(),
    }
)
# Names that a shell accepts; variables with other names reach the ranks but no script.
SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SOURCES_UNKNOWN = "# shellcheck disable=SC1090,SC1091"
"""Comment before the first command of a script with a site's lines, which may source files unknown to shellcheck."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


def command_for(spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, base_env: Mapping[str, str] = _NOTHING) -> Command:
    """The processes to start. Our defaults give way to variables of `base_env`, the base environment."""
    launcher = launcher_of(spec)
    env = {one.name: one.value for one in environment(spec, allocation, attempt, base_env) if one.set_by != "caller"}
    return Command(
        argv=launcher.argv(spec, allocation, attempt, {**base_env, **env}),
        env=env,
        cwd=spec.cwd,
        ranks=launcher.rank_variables(spec, allocation),
    )


def activation_lines(site: SiteSpec | None) -> Iterator[str]:
    """The site's lines of bash. A line that fails ends the shell and is named by its number, since its text may hold a secret."""
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
    """activate.sh, which starts the command in its arguments after the site's lines. The variables `kept` are restored: the plan's override
    the site's."""
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
    """Where the launcher redirects each rank's output; None where the agent reads it from pipes."""
    return launcher_of(spec).rank_log_folder(spec, node_paths(attempt, node))


def variables_set_by_launcher(spec: RunSpec, allocation: Allocation, variables: Mapping[str, str]) -> dict[str, str]:
    return launcher_of(spec).variables_set_for_ranks(allocation, variables)


def launcher_of(spec: RunSpec) -> Launcher:
    kind = spec.launcher.kind
    if kind not in LAUNCHERS:
        raise LaunchError(f"unknown launcher '{kind}'; {did_you_mean(kind, LAUNCHERS)}")
    return LAUNCHERS[kind]
