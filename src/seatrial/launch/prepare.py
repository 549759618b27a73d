"""Everything an attempt needs on disk before its agents start.

In: a run's spec, its allocation, the attempt's folder and the base environment. Out: spec.json, settings.json (bundled workloads),
environment.json, command.sh, agent.json, and the order in the last. On many hosts every node has its own command.sh and agent.json, the
attempt a hostfile of the hosts in use and a command.sh that starts them all. Commands and orders hold the plan's variables as they are,
secrets too, and are private: a masked command could not be run.

command.sh runs by hand what the harness started. Events and rank logs of such a run go to attempt-N/by-hand/, so that the harness's records
stay unchanged. Variables of the base environment that can change a run (NCCL_ALGO and the like) are defaults there, which the shell
overrides.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from seatrial.core.errors import LaunchError
from seatrial.core.files import PRIVATE_PROGRAM, write_json, write_private_json, write_text
from seatrial.core.hostfile import hostfile_text
from seatrial.core.launcher_options import PDSH_APPEND, ssh_command
from seatrial.core.log_header import header_text
from seatrial.core.paths import BY_HAND, AttemptPaths
from seatrial.core.shell import export_lines, find_program, quote
from seatrial.core.tables import format_cell
from seatrial.launch.launchers import allocation_for_node, node_paths
from seatrial.launch.launchers.commands import SHELL_NAME, activation_script, command_for, rank_log_folder, variables_set_by_launcher
from seatrial.launch.launchers.environment import environment, portable_environment
from seatrial.launch.transports.choice import user_ssh_args
from seatrial.machine.network import is_this_host
from seatrial.machine.orphans import list_segments
from seatrial.machine.provenance import is_recorded_variable, mask_planned
from seatrial.machine.secrets import MASK, is_secret_name, mask, mask_argv, mask_text
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Scalar
from seatrial.records.codec import to_json
from seatrial.records.columns import META_KEYS
from seatrial.records.eta import OFF
from seatrial.records.events import ENV_RUN_DIR
from seatrial.records.launch import AgentOrder, Allocation, Command, EnvironmentVariable, Node
from seatrial.records.plan import PlaceSpec, RunSpec
from seatrial.records.run_table import config_cells

_COMES_WITH = {
    "torchrun": "install torch (pip install 'seatrial[workloads]')",
    "accelerate": "install it (pip install accelerate)",
    **dict.fromkeys(("deepspeed", "ds"), "install DeepSpeed (pip install 'seatrial[stage1]')"),
}
# One rank that fails ends the others, as the agent does; bash gives background processes no terminal interrupt, so it is passed on.
_SEVERAL_RANKS_HEAD = """\
pids=()
stop() {
  trap - TERM INT
  kill -TERM "${pids[@]}" 2>/dev/null || true
  wait || true
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT"""
_SEVERAL_RANKS_TAIL = 'for _ in "${pids[@]}"; do wait -n || stop "$?"; done'


def prepare_attempt(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, base_env: Mapping[str, str]) -> tuple[AgentOrder, ...]:
    """Write the attempt's files and return the agents' orders: one per node, that of the lowest ranks first."""
    if not allocation.nodes:
        return (prepare_local(spec, attempt, allocation, base_env),)
    base = [_base_environment(spec.place, node, base_env) for node in allocation.nodes]
    orders = [_order(spec, attempt, allocation_for_node(allocation, node), own) for node, own in zip(allocation.nodes, base, strict=True)]
    defaults = _write_common(spec, attempt, allocation_for_node(allocation, allocation.nodes[0]), orders[0].command, base[0])
    write_text(attempt.hostfile, hostfile_text(allocation.nodes))
    for node, order in zip(allocation.nodes, orders, strict=True):
        own = attempt.node(node.name)
        write_text(own.command, command_script(order.command, attempt, defaults, node), PRIVATE_PROGRAM)
        write_private_json(own.agent_order, to_json(order))
    ssh_args = _ssh_args(spec.place, allocation.nodes, base_env)
    lines = _all_nodes_lines(attempt, allocation.nodes, spec.place.traits.starts_agents_over_ssh, ssh_args)
    write_text(attempt.command, "".join(f"{line}\n" for line in lines), PRIVATE_PROGRAM)
    return tuple(orders)


def prepare_local(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, base_env: Mapping[str, str]) -> AgentOrder:
    """`prepare_attempt` for a run on this machine, which has one agent."""
    order = _order(spec, attempt, allocation, base_env)
    defaults = _write_common(spec, attempt, allocation, order.command, base_env)
    write_text(attempt.command, command_script(order.command, attempt, defaults), PRIVATE_PROGRAM)
    write_private_json(attempt.agent_order, to_json(order))
    return order


def _ssh_args(place: PlaceSpec, nodes: Sequence[Node], base_env: Mapping[str, str]) -> tuple[str, ...]:
    """The options of the ssh that started the agents."""
    if not base_env.get(PDSH_APPEND):
        # Without looking up names.
        return place.ssh_args
    return user_ssh_args(place, [node.name for node in nodes if not is_this_host(node.name)], base_env)


def _base_environment(place: PlaceSpec, node: Node, base_env: Mapping[str, str]) -> Mapping[str, str]:
    """The base environment of a node's ranks, as far as the harness knows it: its own on this machine, elsewhere the part not bound to a
    host. What another host adds is recorded by its agent."""
    is_here = node.node_rank == 0 if place.traits.typed_on_each_node else is_this_host(node.name)
    return base_env if is_here else portable_environment(base_env)


def _order(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, base_env: Mapping[str, str]) -> AgentOrder:
    node = allocation.node
    command = command_for(spec, allocation, attempt, base_env)
    # The plan's interpreter is on the hosts, not necessarily here.
    if not node or command.argv[0] != spec.place.python:
        command = resolve_program(command, base_env)
    if is_activated(spec):
        command = replace(command, argv=("bash", str(attempt.activation), *command.argv))
    own = node_paths(attempt, node)
    return AgentOrder(
        command=command,
        attempt_folder=str(attempt.folder),
        rank_logs=rank_log_folder(spec, attempt, node),
        term_s=spec.limits.term_s,
        telemetry=spec.telemetry,
        stack_signal=spec.limits.stack_signal,
        host=socket.gethostname(),
        # Another host's agent lists its own segments.
        shared_memory=None if node else list_segments(),
        devices=allocation.devices,
        own_folder="" if own == attempt else str(own.folder),
        first_rank=node.first_rank if node else 0,
    )


def is_activated(spec: RunSpec) -> bool:
    """Whether the ranks are started after the site's lines; not in an image, which has its own environment."""
    in_image = spec.place.slurm is not None and spec.place.slurm.container is not None
    return spec.site is not None and bool(spec.site.activate) and not in_image


def _write_common(
    spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, command: Command, base_env: Mapping[str, str]
) -> dict[str, str]:
    """Write the files common to all nodes; returns the base environment's variables that command.sh has as defaults."""
    recorded = {variable.name: variable for variable in environment(spec, allocation, attempt, base_env)}
    by_launcher = {**_shared_variables(command), **variables_set_by_launcher(spec, allocation, {**base_env, **command.env})}
    for name, value in by_launcher.items():
        replaced = base_env.get(name)
        recorded[name] = EnvironmentVariable(name=name, value=value, set_by="launcher", replaced=None if replaced == value else replaced)
    attempt.folder.mkdir(parents=True, exist_ok=True)
    write_json(attempt.spec, to_json(masked_spec(spec)))
    planned = planned_variables(spec)
    masked = [_masked(recorded[name], planned.get(name)) for name in sorted(recorded)]
    activated = {}
    if spec.site is not None and is_activated(spec):
        # The site's lines may export secrets.
        write_text(attempt.activation, activation_script(spec.site, {*command.env, *command.ranks[0]}), PRIVATE_PROGRAM)
        activated = {"activated": [mask_text(line) for line in spec.site.activate]}
    write_json(attempt.environment, {"variables": to_json(masked), **activated})
    if spec.workload.module:
        write = write_private_json if masked_spec(spec).settings != spec.settings else write_json
        write(attempt.settings, to_json(spec.settings))
    return {name: variable.value for name, variable in recorded.items() if variable.set_by == "caller" and not is_secret_name(name)}


# Settings that only the stage-1 trainer has, however it is started.
_STAGE1_SETTINGS = ("speech_model", "text_model", "zero_stage")
SPLIT = "split"
"""The original's value where attention differs between the towers."""


def write_log_header(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, order: AgentOrder, provenance: Provenance) -> None:
    """Begin launcher.log of a stage-1 run with the original driver's META and CMD blocks, secrets masked; agents append to it.

    Effective precision, dtype and attention are not known yet and stay empty; where the original had effective values, requested ones are
    marked as such. The manifest has the effective ones.
    """
    if not all(name in spec.settings or name in spec.axes for name in _STAGE1_SETTINGS):
        return
    own = AttemptPaths(Path(order.writes_to))
    cells = _meta_cells(spec, attempt, allocation, provenance)
    meta = {name: mask(name, format_cell(cells.get(name))) for name in META_KEYS}
    own.folder.mkdir(parents=True, exist_ok=True)
    write_text(own.launcher_log, header_text(meta, quote(mask_argv(order.command.argv))))


def _meta_cells(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, provenance: Provenance) -> dict[str, Scalar]:
    """The values of META that are known before the start."""
    requested = {**spec.settings, **spec.axes}
    known = config_cells(spec, provenance, {}, allocation.ranks)
    # A tower without its own value has the common one; without a common one, the towers' is used.
    towers = {name: known[name] or known["attn_impl_req"] for name in ("speech_attn_impl_req", "text_attn_impl_req")}
    speech, text = towers.values()
    telemetry, timing, fixed_slice_s = spec.telemetry, spec.timing, requested.get("fixed_slice_s")
    return {
        **known,
        **towers,
        "attn_impl_req": known["attn_impl_req"] or (speech if speech == text else SPLIT),
        "timestamp": datetime.now().astimezone().isoformat(timespec="seconds"),
        "mode": spec.mode,
        "group": spec.group,
        "repeat": spec.repeat,
        "port": allocation.master_port,
        **{name: _marked(known[name]) for name in ("torch_compile_enabled", "tf32_enabled")},
        **{name: _marked(requested.get(name)) for name in ("torch_compile_mode", "torch_compile_dynamic", "matmul_precision")},
        "enable_gpu_telemetry": telemetry.gpu_s is not None,
        "gpu_telemetry_interval_sec": telemetry.gpu_s,
        "gpu_telemetry_csv": str(attempt.gpu_telemetry),
        "enable_host_telemetry": telemetry.host_s is not None,
        "host_telemetry_interval_sec": telemetry.host_s,
        "host_telemetry_csv": str(attempt.host_telemetry),
        "enable_eta_logging": timing.eta_mode != OFF,
        "eta_distributed_mode": timing.eta_mode,
        "eta_min_samples": timing.eta_min_samples,
        "stall_alert_ratio": spec.limits.spike_ratio,
        "enable_length_fixed_slice": fixed_slice_s is not None,
        "fixed_slice_seconds": fixed_slice_s,
        "enable_length_bucket": bool(requested.get("length_buckets")),
        "length_bucket_boundaries_sec": requested.get("bucket_boundaries_s"),
        "run_dir": str(attempt.folder.parent),
    }


def _marked(requested: Scalar) -> str | None:
    """`true (requested)`: whether it can be had is not known yet. What is off stays off."""
    text = format_cell(requested)
    return f"{text} (requested)" if text and requested is not False else text


def masked_spec(spec: RunSpec) -> RunSpec:
    """`spec` as the team may read it: what looks like a secret in its settings, axes, variables and arguments is masked."""
    return replace(
        spec,
        settings=_masked_values(spec.settings),
        axes=_masked_values(spec.axes),
        env=planned_variables(spec),
        site=spec.site
        and replace(spec.site, env=mask_planned(spec.site.env, ()), activate=tuple(mask_text(line) for line in spec.site.activate)),
        workload=replace(spec.workload, args=tuple(mask_argv(spec.workload.args))),
        launcher=replace(spec.launcher, args=tuple(mask_argv(spec.launcher.args)), program=tuple(mask_argv(spec.launcher.program))),
    )


def planned_variables(spec: RunSpec) -> dict[str, str]:
    """The plan's variables as the team may read them. The run's hash is over the values themselves, and command.sh has them."""
    return mask_planned(spec.env, (*spec.settings.values(), *spec.axes.values()))


def _masked_values(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: mask(name, value) if isinstance(value, str) else value for name, value in values.items()}


def _shared_variables(command: Command) -> dict[str, str]:
    """Variables that are the same for all processes of a command; RANK and LOCAL_RANK differ."""
    first, *others = command.ranks
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _masked(variable: EnvironmentVariable, planned: str | None) -> EnvironmentVariable:
    """`planned` is what may be shown of the plan's value. The base environment's that it replaced is shown where that one is recorded."""
    replaced = variable.replaced
    if replaced is not None:
        replaced = mask(variable.name, replaced) if is_recorded_variable(variable.name) else MASK
    value = planned if variable.set_by == "plan" and planned is not None else mask(variable.name, variable.value)
    return replace(variable, value=value, replaced=replaced)


def resolve_program(command: Command, base_env: Mapping[str, str]) -> Command:
    """`command` with the full path of its program, found on its own PATH or beside this interpreter (an environment that was not
    activated), so that command.sh starts the same program from any shell. LaunchError where it is not found."""
    program = _find(command.argv[0], Path(command.cwd), {**base_env, **command.env}.get("PATH"))
    return replace(command, argv=(program, *command.argv[1:]))


def _find(name: str, cwd: Path, search_path: str | None) -> str:
    if "/" in name:
        return _check_file(name, cwd)
    found = find_program(name, search_path, cwd)
    if found:
        return found
    advice = f"{_COMES_WITH.get(name, 'install it')}, or activate the environment it is in"
    if (cwd / name).is_file():
        advice = f"a file of that name is in {cwd}, so type './{name}' or 'python {name}'"
    raise LaunchError(f"'{name}' was found neither on PATH nor beside this interpreter: {advice}")


def _check_file(name: str, cwd: Path) -> str:
    path = cwd / name
    if not path.is_file():
        raise LaunchError(f"'{name}' does not exist (looked at {path}): check the path, relative ones count from {cwd}")
    if not os.access(path, os.X_OK):
        raise LaunchError(f"'{name}' is not executable: run `chmod +x {path}`, or start it with its interpreter (python {name})")
    return name


def command_script(
    command: Command, attempt: AttemptPaths, defaults: Mapping[str, str] = MappingProxyType({}), node: Node | None = None
) -> str:
    """command.sh of one node; `defaults` are the variables of the base environment that reached the ranks."""
    return "\n".join(_script_lines(redirect_to_by_hand(command, attempt, node), attempt, defaults, node)) + "\n"


def redirect_to_by_hand(command: Command, attempt: AttemptPaths, node: Node | None = None) -> Command:
    """`command` with its output in the by-hand folder."""
    folder = attempt.folder / BY_HAND
    own = node_paths(attempt, node)
    rank_logs = str(own.rank_logs)
    argv = tuple(str(own.folder / BY_HAND / own.rank_logs.name) if argument == rank_logs else argument for argument in command.argv)
    env = {**command.env, ENV_RUN_DIR: str(folder)} if command.env.get(ENV_RUN_DIR) == str(attempt.folder) else command.env
    return replace(command, argv=argv, env=env)


def _script_lines(command: Command, attempt: AttemptPaths, defaults: Mapping[str, str], node: Node | None) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    on_node = f" on {node.name}" if node else ""
    where = "in the attempt's folder" if node else "beside this file"
    yield f"# {attempt.run}, attempt {attempt.number}{on_node}, as the harness started it. Its output goes to {BY_HAND}/ {where}."
    yield "set -euo pipefail"
    yield f"mkdir -p {shlex.quote(str(attempt.folder / BY_HAND))}"
    yield f"cd {shlex.quote(command.cwd)}"
    for name, value in sorted(defaults.items()):
        if name not in command.env and SHELL_NAME.fullmatch(name):
            yield f"export {name}=${{{name}-{shlex.quote(value)}}}"
    yield from export_lines(command.env)
    own = node_paths(attempt, node)
    rank_logs = str(own.folder / BY_HAND / own.rank_logs.name)
    if rank_logs in command.argv:
        yield f"echo {shlex.quote(f'each rank writes its output below {rank_logs}')} >&2"
    if len(command.ranks) == 1:
        yield from export_lines(command.ranks[0])
        yield f"exec {quote(command.argv)}"
        return
    yield _SEVERAL_RANKS_HEAD
    for variables in command.ranks:
        own_variables = [f"{name}={value}" for name, value in variables.items()]
        yield f"{quote(['env', *own_variables, *command.argv])} &"
        yield "pids+=($!)"
    yield _SEVERAL_RANKS_TAIL


def _all_nodes_lines(attempt: AttemptPaths, nodes: Sequence[Node], by_ssh: bool, ssh_args: Sequence[str]) -> Iterator[str]:
    argvs = {node.name: ["bash", str(attempt.node(node.name).command)] for node in nodes}
    yield "#!/usr/bin/env bash"
    yield f"# {attempt.run}, attempt {attempt.number}, on {len(nodes)} hosts. Its output goes to {BY_HAND}/ beside this file."
    yield "set -euo pipefail"
    if not by_ssh:
        yield "echo 'type on each node, at about the same time:' >&2"
        yield from (f"echo {shlex.quote(f'{name}: {quote(argv)}')} >&2" for name, argv in argvs.items())
        yield "exit 1"
        return
    yield "# By hand, one terminal per host, at about the same time:"
    # A newline in a path would end the comment.
    yield from (f"#   on {name}: {quote(argv)}".replace("\n", "\\n") for name, argv in argvs.items())
    yield _SEVERAL_RANKS_HEAD
    for name, argv in argvs.items():
        yield f"{quote(_with_terminal(ssh_command(name, argv, ssh_args)))} &"
        yield "pids+=($!)"
    yield _SEVERAL_RANKS_TAIL


def _with_terminal(ssh_argv: Sequence[str]) -> list[str]:
    """An ssh whose end hangs up what it started there: without a terminal that would run on when this script is stopped."""
    program, *others = (argument for argument in ssh_argv if argument != "-T")
    return [program, "-tt", "-n", *others]
