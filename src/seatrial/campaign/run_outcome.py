"""How a run ended, from all that is known of it: a RunOutcome.

In: what the supervisor saw (`Ending`), the event files of its ranks, the logs of its hosts, the stacks it left; or the error that kept it
from being started. Out: outcome, cause, what to do, and the lines that tell.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.campaign.ending import Ending, RankRecord, judge_ending, with_oom_kill
from seatrial.campaign.host_words import host_of_rank, with_host, with_its_log
from seatrial.campaign.standstill import where_it_stood
from seatrial.collect.failure.cause import diagnose
from seatrial.collect.hosts.logs import last_lines, logs_of
from seatrial.collect.rank_endings import num_ended_well_on, num_started
from seatrial.disk.append import kept_elsewhere
from seatrial.errors import HostError, LaunchError, PortTakenError, StoppedError
from seatrial.paths import AttemptPaths
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.signatures.registry import fault_named, general, signature
from seatrial.signatures.signature import Signature

# As many lines as the tracebacks of a few ranks take.
FAILURE_TAIL_LINES = 80
# Of a rank: its `stop`, and enough before that to know whether it took steps.
LAST_EVENTS = 50
# How much of each host's log is searched for what is known to fail.
DIAGNOSIS_LINES = 2000
DIAGNOSIS_BYTES = 200_000


def outcome_of(spec: RunSpec, attempt: AttemptPaths, ending: Ending, started_t: float, port: int) -> RunOutcome:
    """Of a run that was started, and is over."""
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


def outcome_of_unstarted(spec: RunSpec, attempt: int, error: LaunchError, started_t: float, ended_t: float) -> RunOutcome:
    """Of a run that could not be started."""
    entry = _entry_of(error)
    return RunOutcome(
        run=spec.run,
        attempt=attempt,
        hash=spec.hash,
        outcome=Outcome.INTERRUPTED if isinstance(error, StoppedError) else Outcome.FAILED,
        cause=entry.cause,
        detail=str(error),
        action=entry.action,
        host=error.host if isinstance(error, HostError) else "",
        signature=entry.id,
        fault=entry.fault,
        started_t=started_t,
        ended_t=ended_t,
    )


def _entry_of(error: LaunchError) -> Signature:
    """What the registry knows of a run that could not be started."""
    if isinstance(error, HostError):
        return signature(error.cause)
    if isinstance(error, StoppedError):
        return general(Cause.USER)
    return general(Cause.PORT_IN_USE if isinstance(error, PortTakenError) else Cause.PROGRAM_MISSING)


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
