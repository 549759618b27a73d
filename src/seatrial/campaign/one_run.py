"""One run from its spec to its outcome: allocate its place, write the commands, start the agents, follow them, record how it ended.

In: a RunSpec and the attempt's folder. Out: a RunOutcome, also the file written last: where it exists, the attempt is over. A run that
fails or cannot be started is an outcome, not an exception. `new_attempt` records the checkpoint that an attempt starts from, which is not
part of the run's hash.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from seatrial.campaign.follow import Follower, OnProgress, OnStop
from seatrial.campaign.interrupts import StopRequests
from seatrial.campaign.live_log import LiveLog
from seatrial.campaign.resume import with_resumption
from seatrial.campaign.run_outcome import mask_outcome, outcome_of, outcome_of_unstarted
from seatrial.collect.attempt_files import recover_files
from seatrial.core import files
from seatrial.core.durable_writes import write_json_durably
from seatrial.core.errors import LaunchError
from seatrial.core.paths import AttemptPaths, RunPaths
from seatrial.launch.agents import Agents
from seatrial.launch.launchers.commands import variables_set_by_launcher
from seatrial.launch.launchers.environment import environment, tuning_variables
from seatrial.launch.pernode_server import PernodeServer
from seatrial.launch.places import AllocatedRun, allocate
from seatrial.launch.prepare import masked_spec, planned_variables, prepare_attempt, write_log_header
from seatrial.machine.provenance import gather_provenance, with_host_facts
from seatrial.records.attempt import HostFacts, Provenance
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentOrder, Allocation, Command, NodeRecord, NodesRecord
from seatrial.records.outcome import Resumption, RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.stored import accepted_outcome, counting_attempt, read_resumption

SCRIPT_ENDINGS = (".py", ".sh")
NO_HOSTS: Mapping[str, HostFacts] = MappingProxyType({})


def new_attempt(run: RunPaths, resumption: Resumption | None = None) -> AttemptPaths:
    """The next attempt's folder, newly created: attempts never share a file. `resumption` is where it starts."""
    attempt = run.next_attempt()
    attempt.folder.mkdir(parents=True)
    if resumption is not None:
        files.write_json(attempt.resume, to_json(resumption))
    return attempt


def run_one(
    spec: RunSpec,
    attempt: AttemptPaths,
    interrupts: StopRequests,
    on_progress: OnProgress,
    on_stop: OnStop,
    plan_hash: str = "",
    *,
    server: PernodeServer | None = None,
    hosts: Mapping[str, HostFacts] = NO_HOSTS,
    log: LiveLog | None = None,
) -> RunOutcome:
    """Run `spec` in the folder that `new_attempt` created; `close_attempt` writes the outcome. `hosts`: facts of its hosts, by name."""
    started_t, log = time.time(), log or LiveLog(attempt)
    try:
        with allocate(spec, attempt, pernode_server=server, should_stop=interrupts.stop_requested) as allocated:
            job = os.environ.get("SLURM_JOB_ID", "") if spec.place.traits.runs_in_jobs else ""
            allocation = replace(allocated.allocation, resume_from=_resume_from(attempt), rendezvous_id=job)
            orders = prepare_attempt(spec, attempt, allocation, os.environ)
            provenance = _provenance(spec, attempt, orders[0].command, allocation, plan_hash, hosts)
            files.write_json(attempt.provenance, to_json(provenance))
            write_log_header(spec, attempt, allocation, orders[0], provenance)
            started_t = time.time()
            follower = Follower(spec, attempt, interrupts, on_progress, on_stop, log=log)
            ending = follower.follow(lambda: _start(attempt, allocated, orders))
        _record_nodes(attempt, allocated, ending.nodes)
        # Ranks wrote to the fallback folder while the disk failed: merge that into their files.
        recover_files(attempt.folder)
        outcome = outcome_of(spec, attempt, ending, started_t, allocation.master_port, log)
    except LaunchError as error:
        return unstarted(spec, attempt, error, started_t)
    return mask_outcome(outcome, spec, os.environ)


def unstarted(spec: RunSpec, attempt: AttemptPaths, error: LaunchError, started_t: float) -> RunOutcome:
    """The outcome of a run whose ranks were not started."""
    if not attempt.spec.exists():
        files.write_json(attempt.spec, to_json(masked_spec(spec)))
    return mask_outcome(outcome_of_unstarted(spec, attempt.number, error, started_t, time.time()), spec, os.environ)


def _resume_from(attempt: AttemptPaths) -> str:
    resumption = read_resumption(attempt)
    source = resumption.from_attempt if resumption else None
    # Absolute: ranks are started in the plan's folder, on any host.
    return "" if source is None else str(RunPaths(attempt.folder.parent).attempt(source).folder.absolute())


def _start(attempt: AttemptPaths, allocated: AllocatedRun, orders: Sequence[AgentOrder]) -> Agents:
    """Start the agents; `watch` finds the run's hosts in nodes.json from now on."""
    agents = allocated.start(orders)
    _record_nodes(attempt, allocated, agents.nodes())
    return agents


def _record_nodes(attempt: AttemptPaths, allocated: AllocatedRun, nodes: tuple[NodeRecord, ...]) -> None:
    """Write nodes.json of a run on many hosts, whose clock offsets are needed to read anything."""
    if not nodes:
        return
    allocation = allocated.allocation
    record = NodesRecord(nodes=nodes, via=allocated.via, master_addr=allocation.master_addr, master_port=allocation.master_port)
    write_json_durably(attempt.nodes_record, to_json(record))


def close_attempt(attempt: AttemptPaths, outcome: RunOutcome) -> RunOutcome:
    """Write the outcome, last, also on a failing disk."""
    outcome = with_resumption(outcome, attempt)
    write_json_durably(attempt.outcome, to_json(outcome))
    run = RunPaths(attempt.folder.parent)
    newest = next(reversed(run.attempts()), attempt)
    # A job of the previous plan may end after the run was started again.
    link_counted(run, outcome.hash if newest.number == attempt.number else _hash_of(newest) or outcome.hash)
    return outcome


def link_counted(run: RunPaths, hash: str) -> None:
    """Link the files of the attempt that counts for the run with this hash."""
    same = [attempt for attempt in run.attempts() if _hash_of(attempt) == hash]
    with contextlib.suppress(OSError):
        if same:
            link_current(run, counting_attempt(same, accepted_outcome))


def _hash_of(attempt: AttemptPaths) -> str:
    stored = files.read_json(attempt.outcome) or files.read_json(attempt.spec)
    return str(stored.get("hash", "")) if isinstance(stored, dict) else ""


def link_current(run: RunPaths, attempt: AttemptPaths) -> None:
    """Link the attempt's files into the run's folder; remove links to files of an earlier attempt that it lacks."""
    present = {path.name: path for path in attempt.linked() if path.exists()}
    for stale in run.folder.iterdir():
        if stale.is_symlink() and stale.name not in present:
            stale.unlink()
    for name, path in present.items():
        with contextlib.suppress(FileExistsError):
            files.link_relative(run.folder / name, path)


def code_folder(spec: RunSpec) -> Path:
    """The folder of a run's code: that of the first existing script in its command, else its working directory."""
    cwd = Path(spec.cwd)
    scripts = [arg for arg in (spec.workload.script or "", *spec.workload.args) if arg.endswith(SCRIPT_ENDINGS)]
    return next((path.parent for script in scripts if (path := cwd / script).is_file()), cwd)


def _provenance(
    spec: RunSpec, attempt: AttemptPaths, command: Command, allocation: Allocation, plan_hash: str, hosts: Mapping[str, HostFacts]
) -> Provenance:
    variables = {**os.environ, **command.env}
    recorded = {variable.name: variable.value for variable in environment(spec, allocation, attempt, os.environ)}
    gathered = gather_provenance(
        Path(spec.cwd),
        allocation.devices,
        program=command.argv,
        env=variables,
        tuning=tuning_variables(spec, os.environ),
        environment={**recorded, **planned_variables(spec), **variables_set_by_launcher(spec, allocation, variables)},
        plan_hash=plan_hash,
        output=attempt.folder.parent.parent,
        code=code_folder(spec),
    )
    return with_host_facts(gathered, [node.name for node in allocation.nodes], hosts)
