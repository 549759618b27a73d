"""Everything an attempt needs on disk before its agents start.

In: a run's spec, its allocation, the attempt's folder and the caller's environment. Out: spec.json, settings.json (bundled
workloads), environment.json, command.sh, agent.json, and the order that stands in the last. On many hosts every node has a command.sh
and an agent.json of its own, the attempt a hostfile of the hosts in use and a command.sh that starts them all. Commands and orders hold
the plan's variables as they are, secrets too, and are private: a masked command could not be run.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from seatrial.disk.modes import PRIVATE_PROGRAM
from seatrial.files import write_json, write_private_json, write_text
from seatrial.hostfile import hostfile_text
from seatrial.launch.command_file import all_nodes_text, command_text
from seatrial.launch.environment import environment, inherited
from seatrial.launch.launchers.registry import command_for, given_to_ranks, rank_logs_for
from seatrial.launch.nodes import as_seen_by, own_paths
from seatrial.launch.program import resolved
from seatrial.launch.transports.choose import users_args
from seatrial.machine.secret_names import is_secret_name
from seatrial.machine.secrets import mask, mask_words
from seatrial.machine.shared_memory import present
from seatrial.machine.this_host import is_this_host
from seatrial.options.ssh import PDSH_APPEND
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AgentOrder, Allocation, Command, EnvironmentVariable, Node
from seatrial.records.run_spec import HOSTFILE, PERNODE, PlaceSpec, RunSpec, Scalar


def prepare_all(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, caller: Mapping[str, str]) -> tuple[AgentOrder, ...]:
    """Write the attempt's files and return what each agent is to do: one order a node, the first is that of the lowest ranks."""
    if not allocation.nodes:
        return (prepare(spec, attempt, allocation, caller),)
    beneath = [_beneath(spec.place, node, caller) for node in allocation.nodes]
    orders = [_order(spec, attempt, as_seen_by(allocation, node), own) for node, own in zip(allocation.nodes, beneath, strict=True)]
    callers = _write_common(spec, attempt, as_seen_by(allocation, allocation.nodes[0]), orders[0].command, beneath[0])
    write_text(attempt.hostfile, hostfile_text(allocation.nodes))
    for node, order in zip(allocation.nodes, orders, strict=True):
        own = attempt.node(node.name)
        write_text(own.command, command_text(order.command, attempt, callers, node), PRIVATE_PROGRAM)
        write_private_json(own.agent_order, to_json(order))
    ssh_args = _ssh_args(spec.place, allocation.nodes, caller)
    write_text(attempt.command, all_nodes_text(attempt, allocation.nodes, spec.place.kind == HOSTFILE, ssh_args), PRIVATE_PROGRAM)
    return tuple(orders)


def _ssh_args(place: PlaceSpec, nodes: Sequence[Node], caller: Mapping[str, str]) -> tuple[str, ...]:
    """With what agents were started."""
    if not caller.get(PDSH_APPEND):
        # No name need be looked up.
        return place.ssh_args
    return users_args(place, [node.name for node in nodes if not is_this_host(node.name)], caller)


def _beneath(place: PlaceSpec, node: Node, caller: Mapping[str, str]) -> Mapping[str, str]:
    """What lies beneath the variables of a node's ranks, as far as the harness knows: all of its own here, elsewhere what belongs to no
    host. What another host has of its own, its agent writes down."""
    is_here = node.node_rank == 0 if place.kind == PERNODE else is_this_host(node.name)
    return caller if is_here else inherited(caller)


def prepare(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, caller: Mapping[str, str]) -> AgentOrder:
    """The same for a run on this machine, which has one agent."""
    order = _order(spec, attempt, allocation, caller)
    callers = _write_common(spec, attempt, allocation, order.command, caller)
    write_text(attempt.command, command_text(order.command, attempt, callers), PRIVATE_PROGRAM)
    write_private_json(attempt.agent_order, to_json(order))
    return order


def _order(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, caller: Mapping[str, str]) -> AgentOrder:
    node = allocation.node
    command = command_for(spec, allocation, attempt, caller)
    # The plan's interpreter lies on the hosts, and need not lie here.
    if not node or command.argv[0] != spec.place.python:
        command = resolved(command, caller)
    own = own_paths(attempt, node)
    return AgentOrder(
        command=command,
        attempt_folder=str(attempt.folder),
        rank_logs=rank_logs_for(spec, attempt, node),
        term_s=spec.limits.term_s,
        telemetry=spec.telemetry,
        stack_signal=spec.limits.stack_signal,
        host=socket.gethostname(),
        # What lies in this host's says nothing of another's; its agent looks itself.
        shared_memory=None if node else present(),
        devices=allocation.devices,
        own_folder="" if own == attempt else str(own.folder),
        first_rank=node.first_rank if node else 0,
    )


def _write_common(
    spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, command: Command, caller: Mapping[str, str]
) -> dict[str, str]:
    """What is the same for all nodes of an attempt; the caller's variables that stand in a command.sh."""
    recorded = {variable.name: variable for variable in environment(spec, allocation, attempt, caller)}
    of_launcher = {**_alike(command), **given_to_ranks(spec, allocation, {**caller, **command.env})}
    recorded.update({variable.name: variable for variable in _launcher_variables(of_launcher, caller)})
    attempt.folder.mkdir(parents=True, exist_ok=True)
    write_json(attempt.spec, to_json(masked_spec(spec)))
    write_json(attempt.environment, {"variables": [to_json(_masked(recorded[name])) for name in sorted(recorded)]})
    if spec.workload.module:
        write = write_private_json if masked_spec(spec).settings != spec.settings else write_json
        write(attempt.settings, to_json(spec.settings))
    return {name: variable.value for name, variable in recorded.items() if variable.set_by == "caller" and not is_secret_name(name)}


def masked_spec(spec: RunSpec) -> RunSpec:
    """`spec` as it may be read by the team: what looks like a secret in its settings, axes, variables and words is masked."""
    return replace(
        spec,
        settings=_masked_values(spec.settings),
        axes=_masked_values(spec.axes),
        env={name: mask(name, value) for name, value in spec.env.items()},
        workload=replace(spec.workload, args=tuple(mask_words(spec.workload.args))),
        launcher=replace(spec.launcher, args=tuple(mask_words(spec.launcher.args)), program=tuple(mask_words(spec.launcher.program))),
    )


def _masked_values(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: mask(name, value) if isinstance(value, str) else value for name, value in values.items()}


def _alike(command: Command) -> dict[str, str]:
    """What the processes of a command are all given; RANK and LOCAL_RANK differ and follow from the rank."""
    first, *others = command.ranks
    return {name: value for name, value in first.items() if all(overlay.get(name) == value for overlay in others)}


def _launcher_variables(given: Mapping[str, str], caller: Mapping[str, str]) -> Iterator[EnvironmentVariable]:
    for name, value in given.items():
        replaced = caller.get(name)
        yield EnvironmentVariable(name=name, value=value, set_by="launcher", replaced=None if replaced == value else replaced)


def _masked(variable: EnvironmentVariable) -> EnvironmentVariable:
    replaced = None if variable.replaced is None else mask(variable.name, variable.replaced)
    return replace(variable, value=mask(variable.name, variable.value), replaced=replaced)
