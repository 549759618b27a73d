"""One run from its spec to its outcome: take a port, write the command, start the agent, follow it, say how it ended.

Goes in: a RunSpec and the campaign's folder. Comes out: a RunOutcome, which is also the file written last, so that its presence
means that the attempt is over. A run that fails, or cannot even be started, is an outcome and not an exception.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.append import kept_elsewhere
from seatrial.campaign.code_folder import code_folder
from seatrial.campaign.ending import Ending, RankRecord, judge_ending, with_oom_kill
from seatrial.campaign.follow import Follower, OnProgress, OnStop
from seatrial.campaign.interrupts import Interrupts
from seatrial.campaign.masking import masked_outcome
from seatrial.campaign.standstill import where_it_stood
from seatrial.collect.failure import diagnose
from seatrial.collect.rank_endings import num_ended_well
from seatrial.collect.recovered import recover
from seatrial.errors import LaunchError, PortTakenError
from seatrial.launch.environment import environment, tuning_variables
from seatrial.launch.launchers.registry import given_to_ranks
from seatrial.launch.places.local import allocate
from seatrial.launch.prepare import masked_spec, prepare
from seatrial.machine.provenance import gather
from seatrial.paths import AttemptPaths, RunPaths
from seatrial.records.codec import to_json
from seatrial.records.command import Allocation, Command, Provenance
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.signatures.registry import advice, fault_named

FAILURE_TAIL_LINES = 80
LAST_EVENTS = 50
DIAGNOSIS_LINES = 2000
DIAGNOSIS_BYTES = 200_000


def run_one(
    spec: RunSpec, attempt: AttemptPaths, interrupts: Interrupts, on_progress: OnProgress, on_stop: OnStop, plan_hash: str = ""
) -> RunOutcome:
    """Run `spec` in the folder that `new_attempt` made."""
    started_t = time.time()
    try:
        with allocate(spec) as allocation:
            order = prepare(spec, attempt, allocation, os.environ)
            files.write_json(attempt.provenance, to_json(_provenance(spec, attempt, order.command, allocation, plan_hash)))
            started_t = time.time()
            ending = Follower(spec, attempt, interrupts, on_progress, on_stop).follow()
        # What the ranks wrote elsewhere while the disk failed is part of what they tell.
        recover(attempt.folder)
        outcome = _outcome(spec, attempt, ending, started_t, allocation.master_port)
    except LaunchError as error:
        outcome = _not_started(spec, attempt, error, started_t)
    return _close(attempt, masked_outcome(outcome, spec, os.environ))


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


def _provenance(spec: RunSpec, attempt: AttemptPaths, command: Command, allocation: Allocation, plan_hash: str) -> Provenance:
    variables = {**os.environ, **command.env}
    recorded = {variable.name: variable.value for variable in environment(spec, allocation, attempt, os.environ)}
    return gather(
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
    """With what the launcher said of the ends of its ranks: deepspeed's exit code 0 does not tell."""
    if spec.launcher.kind != "deepspeed":
        return ranks
    return replace(ranks, told_of=num_ended_well(attempt.launcher_log), launched=spec.place.ranks)


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
    if judged.needs_log:
        found = diagnose(ending.returncode, _last_lines(attempt.launcher_log, DIAGNOSIS_LINES, DIAGNOSIS_BYTES))
        judged = replace(judged, cause=found.cause, detail=found.detail, action=found.action, signature=found.signature)
        telling = found.telling
    judged = with_oom_kill(judged, ending.oom_kills)
    failed = judged.outcome is not Outcome.OK
    stood = where_it_stood(attempt, ending.alarm)
    told_by = stood.cause.value if stood.cause else judged.signature
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=judged.outcome,
        cause=stood.cause or judged.cause,
        detail=f"{judged.detail}{stood.words}",
        action=stood.action or judged.action,
        exit_code=ending.returncode,
        started_t=started_t,
        ended_t=started_t + ending.elapsed_s,
        duration_s=ending.elapsed_s,
        port=port,
        killed=ending.killed,
        log_tail=tuple(_last_lines(attempt.launcher_log, FAILURE_TAIL_LINES, DIAGNOSIS_BYTES)) if failed else (),
        rank=stood.rank,
        phase=stood.phase,
        signature=told_by,
        fault=fault_named(told_by),
        telling=telling,
        frame=stood.frame,
    )


def _last_lines(log: Path, count: int, most_bytes: int) -> list[str]:
    """The end of a log; while the disk fails, what came last lies elsewhere."""
    elsewhere = kept_elsewhere(log)
    lines = [line for path in (log, elsewhere) if path for line in files.tail_lines(path, count, most_bytes)]
    return lines[-count:]


def _not_started(spec: RunSpec, attempt: AttemptPaths, error: LaunchError, started_t: float) -> RunOutcome:
    if not attempt.spec.exists():
        files.write_json(attempt.spec, to_json(masked_spec(spec)))
    cause = Cause.PORT_IN_USE if isinstance(error, PortTakenError) else Cause.PROGRAM_MISSING
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=Outcome.FAILED,
        cause=cause,
        detail=str(error),
        action=advice(cause),
        signature=cause.value,
        fault=fault_named(cause.value),
        started_t=started_t,
        ended_t=time.time(),
    )
