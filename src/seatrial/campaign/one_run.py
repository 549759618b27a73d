"""One run from its spec to its outcome: take its place, write the commands, start the agents, follow them, say how it ended.

Goes in: a RunSpec and the campaign's folder. Comes out: a RunOutcome, which is also the file written last, so that its presence
means that the attempt is over. A run that fails, or cannot even be started, is an outcome and not an exception.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.campaign.code_folder import code_folder
from seatrial.campaign.ending import Ending, RankRecord, judge_ending, with_oom_kill
from seatrial.campaign.follow import Follower, OnProgress, OnStop
from seatrial.campaign.host_words import host_of_rank, with_host, with_its_log
from seatrial.campaign.hosts import NO_HOSTS, with_hosts
from seatrial.campaign.interrupts import Interrupts, Urgency
from seatrial.campaign.masking import masked_outcome
from seatrial.campaign.standstill import where_it_stood
from seatrial.collect.failure import diagnose
from seatrial.collect.host_logs import last_lines, logs_of
from seatrial.collect.rank_endings import num_ended_well_on, num_started
from seatrial.collect.recovered import recover
from seatrial.disk.append import kept_elsewhere
from seatrial.errors import HostError, LaunchError, PortTakenError, StoppedError
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
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.signatures.registry import fault_named, general, signature
from seatrial.signatures.signature import Signature

FAILURE_TAIL_LINES = 80
LAST_EVENTS = 50
DIAGNOSIS_LINES = 2000
DIAGNOSIS_BYTES = 200_000


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
        with take(spec, attempt, gate=gate, should_stop=lambda: interrupts.urgency is not Urgency.NONE) as taken:
            allocation = taken.allocation
            orders = prepare_all(spec, attempt, allocation, os.environ)
            files.write_json(attempt.provenance, to_json(_provenance(spec, attempt, orders[0].command, allocation, plan_hash, hosts)))
            started_t = time.time()
            ending = Follower(spec, attempt, interrupts, on_progress, on_stop).follow(lambda: _started(attempt, taken, orders))
        _record_nodes(attempt, taken, ending.nodes)
        # What the ranks wrote elsewhere while the disk failed is part of what they tell.
        recover(attempt.folder)
        outcome = _outcome(spec, attempt, ending, started_t, allocation.master_port)
    except LaunchError as error:
        outcome = _not_started(spec, attempt, error, started_t)
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


def rank_record(attempt: AttemptPaths) -> RankRecord:
    """What the ranks left in their event files."""
    endings = [_last_events(path) for path in attempt.all_events()]
    stops = [stop for events in endings if (stop := next((event for event in events if event.get("kind") == "stop"), None))]
    stepped = any(event.get("kind") == "step" for events in endings for event in events) or any(map(_steps, stops))
    return RankRecord(started=len(endings), done=len(stops), stepped=stepped, least_steps=min(map(_steps, stops), default=0))


def _told_by_launcher(spec: RunSpec, attempt: AttemptPaths, ranks: RankRecord) -> RankRecord:
    """With what the launcher said of the ends of its ranks: deepspeed's exit code 0 does not tell, in a script of the user's neither."""
    launched = spec.place.ranks if spec.launcher.kind == "deepspeed" else num_started(attempt.launcher_log)
    if not launched:
        return ranks
    return replace(ranks, told_of=num_ended_well_on(log.path for log in logs_of(attempt)), launched=launched)


def _last_events(path: Path) -> list[dict[str, Any]]:
    """The newest of a rank's own events; lines of another run or attempt in its file are none of it."""
    first = next(files.read_json_lines(path), {})
    own = (first.get("run"), first.get("attempt"))
    # While the disk fails, the newest lie elsewhere.
    elsewhere = kept_elsewhere(path)
    newest = [event for source in (path, elsewhere) if source for event in files.last_json_lines(source, LAST_EVENTS)]
    return [event for event in newest if (event.get("run"), event.get("attempt")) == own]


def _steps(stop: dict[str, Any]) -> int:
    steps = stop.get("steps")
    return steps if isinstance(steps, int) else 0


def _outcome(spec: RunSpec, attempt: AttemptPaths, ending: Ending, started_t: float, port: int) -> RunOutcome:
    ranks = _told_by_launcher(spec, attempt, rank_record(attempt)) if ending.returncode == 0 else rank_record(attempt)
    # A script may hold the probe in rank 0 only, and `--nproc-per-node gpu` leaves the number of ranks to torchrun.
    bundled = spec.workload.module is not None
    judged = judge_ending(ending, ranks, spec.place.ranks if bundled else ranks.started, spec.steps if bundled else None)
    telling: tuple[str, ...] = ()
    host = ending.broken_host
    if judged.needs_log:
        found = diagnose(ending.returncode, last_lines(attempt, DIAGNOSIS_LINES, DIAGNOSIS_BYTES))
        judged = replace(judged, cause=found.cause, detail=found.detail, action=found.action, signature=found.signature)
        telling, host = found.telling, found.host or host
    judged = with_oom_kill(judged, ending.oom_kills)
    failed = judged.outcome is not Outcome.OK
    stood = where_it_stood(attempt, ending.alarm)
    told_by = stood.cause.value if stood.cause else judged.signature
    host = (host or host_of_rank(ending.nodes, stood.rank)) if failed else ""
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=judged.outcome,
        cause=stood.cause or judged.cause,
        detail=with_host(f"{judged.detail}{stood.words}", host),
        action=with_its_log(stood.action or judged.action, host, ending.nodes),
        exit_code=ending.returncode,
        started_t=started_t,
        ended_t=started_t + ending.elapsed_s,
        duration_s=ending.elapsed_s,
        port=port,
        killed=ending.killed,
        log_tail=tuple(last_lines(attempt, FAILURE_TAIL_LINES, DIAGNOSIS_BYTES, host)) if failed else (),
        rank=stood.rank,
        phase=stood.phase,
        host=host,
        signature=told_by,
        fault=fault_named(told_by),
        telling=telling,
        frame=stood.frame,
    )


def _not_started(spec: RunSpec, attempt: AttemptPaths, error: LaunchError, started_t: float) -> RunOutcome:
    if not attempt.spec.exists():
        files.write_json(attempt.spec, to_json(masked_spec(spec)))
    entry = _entry_of(error)
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=Outcome.INTERRUPTED if isinstance(error, StoppedError) else Outcome.FAILED,
        cause=entry.cause,
        detail=str(error),
        action=entry.action,
        host=error.host if isinstance(error, HostError) else "",
        signature=entry.id,
        fault=entry.fault,
        started_t=started_t,
        ended_t=time.time(),
    )


def _entry_of(error: LaunchError) -> Signature:
    """What the registry knows of a run that could not be started."""
    if isinstance(error, HostError):
        return signature(error.cause)
    if isinstance(error, StoppedError):
        return general(Cause.USER)
    return general(Cause.PORT_IN_USE if isinstance(error, PortTakenError) else Cause.PROGRAM_MISSING)
