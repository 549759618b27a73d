"""One run from its spec to its outcome: take its place, write the commands, start the agents, follow them, say how it ended.

Goes in: a RunSpec and the campaign's folder. Comes out: a RunOutcome, which is also the file written last, so that its presence
means that the attempt is over. A run that fails, or cannot even be started, is an outcome and not an exception.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial import files
from seatrial.campaign.code_folder import code_folder
from seatrial.campaign.follow import Follower, OnProgress, OnStop
from seatrial.campaign.hosts import NO_HOSTS, with_hosts
from seatrial.campaign.interrupts import Interrupts
from seatrial.campaign.masking import masked_outcome
from seatrial.campaign.run_outcome import outcome_of, outcome_of_unstarted
from seatrial.collect.recovered import recover
from seatrial.errors import LaunchError
from seatrial.launch.agents import Agents
from seatrial.launch.environment import environment, tuning_variables
from seatrial.launch.gate import Gate
from seatrial.launch.launchers.registry import given_to_ranks
from seatrial.launch.places.registry import Taken, take
from seatrial.launch.prepare import masked_spec, prepare_all
from seatrial.machine.provenance import gather
from seatrial.paths import AttemptPaths, RunPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AgentOrder, Allocation, Command, Provenance
from seatrial.records.host_facts import HostFacts
from seatrial.records.nodes import NodeRecord, NodesRecord
from seatrial.records.outcome import RunOutcome
from seatrial.records.run_spec import RunSpec


def run_one(
    spec: RunSpec,
    attempt: AttemptPaths,
    interrupts: Interrupts,
    on_progress: OnProgress,
    on_stop: OnStop,
    plan_hash: str = "",
    *,
    gate: Gate | None = None,
    hosts: Mapping[str, HostFacts] = NO_HOSTS,
) -> RunOutcome:
    """Run `spec` in the folder that `new_attempt` made; `hosts` are what the hosts of the run told of themselves."""
    started_t = time.time()
    try:
        with take(spec, attempt, gate=gate, should_stop=interrupts.is_asked) as taken:
            allocation = taken.allocation
            orders = prepare_all(spec, attempt, allocation, os.environ)
            files.write_json(attempt.provenance, to_json(_provenance(spec, attempt, orders[0].command, allocation, plan_hash, hosts)))
            started_t = time.time()
            ending = Follower(spec, attempt, interrupts, on_progress, on_stop).follow(lambda: _started(attempt, taken, orders))
        _record_nodes(attempt, taken, ending.nodes)
        # What the ranks wrote elsewhere while the disk failed is part of what they tell.
        recover(attempt.folder)
        outcome = outcome_of(spec, attempt, ending, started_t, allocation.master_port)
    except LaunchError as error:
        if not attempt.spec.exists():
            files.write_json(attempt.spec, to_json(masked_spec(spec)))
        outcome = outcome_of_unstarted(spec, attempt.number, error, started_t, time.time())
    return _close(attempt, masked_outcome(outcome, spec, os.environ))


def _started(attempt: AttemptPaths, taken: Taken, orders: Sequence[AgentOrder]) -> Agents:
    """The agents at work; who looks on while the run runs finds its hosts in nodes.json."""
    agents = taken.start(orders)
    _record_nodes(attempt, taken, agents.nodes())
    return agents


def _record_nodes(attempt: AttemptPaths, taken: Taken, nodes: tuple[NodeRecord, ...]) -> None:
    """nodes.json, of a run on many hosts: the clocks of all of them must be known before anything is read."""
    if not nodes:
        return
    allocation = taken.allocation
    record = NodesRecord(nodes=nodes, via=taken.via, master_addr=allocation.master_addr, master_port=allocation.master_port)
    files.write_json_surely(attempt.nodes_record, to_json(record))


def _close(attempt: AttemptPaths, outcome: RunOutcome) -> RunOutcome:
    """Write the outcome, last and whatever the disk does."""
    files.write_json_surely(attempt.outcome, to_json(outcome))
    run = RunPaths(attempt.folder.parent)
    # One that was broken off does not hide the files of the one that counts.
    if outcome.outcome.is_cut_short and any(old.outcome.exists() for old in run.attempts() if old.number < attempt.number):
        return outcome
    with contextlib.suppress(OSError):
        link_current(run, attempt)
    return outcome


def _provenance(
    spec: RunSpec, attempt: AttemptPaths, command: Command, allocation: Allocation, plan_hash: str, hosts: Mapping[str, HostFacts]
) -> Provenance:
    variables = {**os.environ, **command.env}
    recorded = {variable.name: variable.value for variable in environment(spec, allocation, attempt, os.environ)}
    gathered = gather(
        Path(spec.cwd),
        allocation.devices,
        program=command.argv,
        env=variables,
        tuning=tuning_variables(spec, os.environ),
        environment={**recorded, **given_to_ranks(spec, allocation, variables)},
        plan_hash=plan_hash,
        output=attempt.folder.parent.parent,
        code=code_folder(spec),
    )
    return with_hosts(gathered, [node.name for node in allocation.nodes], hosts)


def new_attempt(run: RunPaths) -> AttemptPaths:
    """The next attempt's folder, made now: attempts never share a file."""
    attempt = run.next_attempt()
    attempt.folder.mkdir(parents=True)
    return attempt


def link_current(run: RunPaths, attempt: AttemptPaths) -> None:
    """Show the attempt's files in the run's folder under the seeds' names; links of an earlier attempt that it lacks are removed."""
    present = {path.name: path for path in attempt.linked() if path.exists()}
    for stale in run.folder.iterdir():
        if stale.is_symlink() and stale.name not in present:
            stale.unlink()
    for name, path in present.items():
        with contextlib.suppress(FileExistsError):
            files.link_relative(run.folder / name, path)
