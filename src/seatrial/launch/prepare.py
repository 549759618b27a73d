"""Everything an attempt needs on disk before its agent starts.

In: a run's spec, its allocation, the attempt's folder and the caller's environment. Out: spec.json, settings.json (bundled
workloads), environment.json, command.sh, agent.json, and the order that stands in the last.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace

from seatrial.files import READABLE, write_json, write_text
from seatrial.launch.command_file import command_text
from seatrial.launch.environment import environment
from seatrial.launch.launchers.registry import command_for, given_to_ranks, rank_logs_for
from seatrial.launch.program import resolved
from seatrial.machine.secrets import looks_secret, mask, mask_words
from seatrial.machine.shared_memory import present
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AgentOrder, Allocation, Command, EnvironmentVariable
from seatrial.records.run_spec import RunSpec, Scalar

# Both hold the plan's variables as they are, secrets too: a masked command could not be run.
COMMAND_MODE = 0o700
ORDER_MODE = 0o600


def prepare(spec: RunSpec, attempt: AttemptPaths, allocation: Allocation, caller: Mapping[str, str]) -> AgentOrder:
    """Write the attempt's files and return what its agent is to do."""
    command = resolved(command_for(spec, allocation, attempt, caller), caller)
    order = AgentOrder(
        command=command,
        attempt_folder=str(attempt.folder),
        rank_logs=rank_logs_for(spec, attempt),
        term_s=spec.limits.term_s,
        telemetry=spec.telemetry,
        stack_signal=spec.limits.stack_signal,
        host=socket.gethostname(),
        shared_memory=present(),
        devices=allocation.devices,
    )
    recorded = {variable.name: variable for variable in environment(spec, allocation, attempt, caller)}
    of_launcher = {**_alike(command), **given_to_ranks(spec, allocation, {**caller, **command.env})}
    recorded.update({variable.name: variable for variable in _launcher_variables(of_launcher, caller)})
    attempt.folder.mkdir(parents=True, exist_ok=True)
    write_json(attempt.spec, to_json(masked_spec(spec)))
    write_json(attempt.environment, {"variables": [to_json(_masked(recorded[name])) for name in sorted(recorded)]})
    if spec.workload.module:
        private = masked_spec(spec).settings != spec.settings
        write_json(attempt.settings, to_json(spec.settings), ORDER_MODE if private else READABLE)
    callers = {name: variable.value for name, variable in recorded.items() if variable.set_by == "caller" and not looks_secret(name)}
    write_text(attempt.command, command_text(command, attempt, callers), COMMAND_MODE)
    write_json(attempt.agent_order, to_json(order), ORDER_MODE)
    return order


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
