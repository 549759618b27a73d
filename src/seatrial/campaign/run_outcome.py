"""The outcome of a run, from everything known about it: a RunOutcome.

In: what the supervisor saw (`Ending`), the ranks' event files, the hosts' logs, the stacks; or the error that kept the run from
starting. Out: outcome, cause, what to do, and the log lines that show it.

launcher.log keeps what a run printed as it is. Its last lines and the detail derived from them go into outcome.json, the summary and the
tables, which are passed on: there, everything that is or looks like a secret is masked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.campaign.live_log import LiveLog
from seatrial.campaign.outcome_rules import Ending, RankEndings, judge_ending, with_oom_kill
from seatrial.collect.logs.launcher_log import host_logs, last_lines, num_finished_ranks, num_started_ranks
from seatrial.collect.stacks import RankStack, is_in_collective, main_frame, read_stacks
from seatrial.core import files
from seatrial.core.errors import HostError, LaunchError, PortTakenError, StoppedError
from seatrial.core.fallback import fallback_entry
from seatrial.core.paths import ATTEMPT_FILES, AttemptPaths
from seatrial.core.shell import ACTIVATED_LINE
from seatrial.machine.processes import STOPPED
from seatrial.machine.secrets import collect_secrets, mask_lines, mask_text
from seatrial.observe.communicators import world_at_end
from seatrial.observe.watchdog import Alarm, name_options
from seatrial.records.attempt import Provenance
from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.outcome import Cause, Diagnosis, Outcome, RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.signatures.registry import Signature, advice, fault_named, general, signature
from seatrial.records.stored import node_of_rank, read_record

# Enough for the tracebacks of a few ranks.
FAILURE_TAIL_LINES = 80
# Per rank: its `stop`, and enough before that to show whether it took steps.
LAST_EVENTS = 50
TAIL_BYTES = 200_000
ACTIVATE_FAILED = "activate_failed"
MAX_LINE_BEFORE = 300
# A progress bar that is erased at its end was last drawn some steps before.
MIN_SHARE_OF_BAR = 0.9
# The prefix that names who printed a line.
_FROM = re.compile(r"^(?:\[(?:host [^\]]+|rank\d+)\]: ?)+")


def outcome_of(spec: RunSpec, attempt: AttemptPaths, ending: Ending, started_t: float, port: int, log: LiveLog | None = None) -> RunOutcome:
    """`log` has read the log while the run ran; without one it is read now."""
    log = log or LiveLog(attempt)
    ranks = read_rank_endings(attempt)
    if ending.returncode == 0:
        ranks = replace(ranks, small_world=world_at_end(spec.place.ranks, attempt))
        ranks = _with_launcher_log(spec, attempt, ranks, log)
    # A script may have the probe in rank 0 only, and `--nproc-per-node gpu` leaves the number of ranks to torchrun.
    bundled = spec.workload.module is not None
    wanted_ranks, wanted_steps = (spec.place.ranks, spec.steps) if bundled else (ranks.started, None)
    judged = judge_ending(ending, ranks, wanted_ranks, wanted_steps, has_gpus=_may_have_gpus(spec, attempt))
    host = ending.broken_host
    found, may_have_failed = None, ""
    if judged.outcome in (None, Outcome.OK):
        read = log.diagnose(ending.returncode, spec.steps)
        found = read if judged.outcome is None or read.outcome is Outcome.FAILED else None
        may_have_failed = "" if found else _why_it_may_have_failed(read, log, spec.steps)
    if found:
        noticed = "" if found.noticed_by is None else f"noticed by rank {found.noticed_by}: "
        who = f"{found.who}: " if found.who else noticed
        detail = f"{'exit code 0, but ' if judged.outcome is Outcome.OK else ''}{who}{found.detail}"
        judged = replace(found, outcome=Outcome.FAILED, detail=detail)
        host = found.host or host
    judged = with_oom_kill(judged, ending.oom_kills)
    assert judged.outcome is not None
    failed = judged.outcome is not Outcome.OK
    stall = locate_stall(attempt, ending.alarm)
    signature_id = stall.cause.value if stall.cause else judged.signature
    node = None if stall.rank is None else node_of_rank(NodesRecord(nodes=ending.nodes), stall.rank)
    host = (host or (node.name if node else "")) if failed else ""
    log_tail = tuple(last_lines(attempt, FAILURE_TAIL_LINES, TAIL_BYTES, host)) if failed else ()
    site_line = line_before(log_tail) if signature_id == ACTIVATE_FAILED else ""
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=judged.outcome,
        cause=stall.cause or judged.cause,
        detail=with_host(f"{judged.detail}{site_line}{stall.clause}", host),
        action=name_options(with_host_log(stall.action or judged.action, host, ending.nodes), spec),
        exit_code=ending.returncode,
        started_t=started_t,
        ended_t=started_t + ending.elapsed_s,
        duration_s=ending.elapsed_s,
        port=port,
        killed=ending.killed,
        log_tail=log_tail,
        rank=stall.rank if stall.rank is not None or found is None else found.rank,
        phase=stall.phase,
        host=host,
        signature=signature_id,
        fault=fault_named(signature_id),
        telling=found.telling if found else (),
        frame=stall.frame,
        excerpt=found.excerpt if found else (),
        may_have_failed=may_have_failed,
    )


def line_before(tail: Sequence[str]) -> str:
    """`, after: no module cuda`: the last line before ours, which names a failed line of the site by its number only."""
    lines = [_FROM.sub("", line).strip() for line in tail]
    at = next((position for position, line in enumerate(lines) if ACTIVATED_LINE in line), 0)
    before = next((line for line in reversed(lines[:at]) if line), "")
    return f", after: {before[:MAX_LINE_BEFORE]}" if before else ""


def _may_have_gpus(spec: RunSpec, attempt: AttemptPaths) -> bool:
    """False only where the run's own host is the only one, and its provenance names no GPU."""
    provenance, _ = read_record(Provenance, attempt.provenance)
    return not spec.place.traits.is_this_machine or provenance is None or bool(provenance.gpu_uuid_list)


def _why_it_may_have_failed(read: Diagnosis, log: LiveLog, requested_steps: int | None) -> str:
    """Why a run that exited with 0 may have failed; empty where its log gives no reason to doubt it."""
    if read.outcome is None:
        if read.traceback_at_end:
            return f"exited 0 after a traceback: probably failed ({read.detail})"
        if read.cause is Cause.UNKNOWN:
            return f"exited 0, and {read.detail}"
        return f"exited 0, and its log shows an error: it may have failed ({read.detail})"
    # Where no number of steps was requested, only the log names one.
    unfinished = None if read.good_end or requested_steps is not None else log.unfinished()
    if unfinished is None or unfinished[0] > MIN_SHARE_OF_BAR * unfinished[1]:
        return ""
    return f"exited 0, and its log ends at {unfinished[0]:,} of {unfinished[1]:,}"


def outcome_of_unstarted(spec: RunSpec, attempt: int, error: LaunchError, started_t: float, ended_t: float) -> RunOutcome:
    entry = _signature_of(error)
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


def _signature_of(error: LaunchError) -> Signature:
    if isinstance(error, HostError):
        return signature(error.cause)
    if isinstance(error, StoppedError):
        return general(Cause.USER)
    return general(Cause.PORT_IN_USE if isinstance(error, PortTakenError) else Cause.PROGRAM_MISSING)


def read_rank_endings(attempt: AttemptPaths) -> RankEndings:
    endings = [_last_events(path) for path in attempt.all_events()]
    stops = [stop for events in endings if (stop := next((event for event in events if event.get("kind") == "stop"), None))]
    stepped = any(event.get("kind") == "step" for events in endings for event in events) or any(map(_steps, stops))
    return RankEndings(started=len(endings), done=len(stops), stepped=stepped, min_steps=min(map(_steps, stops), default=0))


def _with_launcher_log(spec: RunSpec, attempt: AttemptPaths, ranks: RankEndings, log: LiveLog) -> RankEndings:
    """Add the rank ends that the launcher logged: exit code 0 of deepspeed proves nothing, also within a user's script."""
    launched = spec.place.ranks if spec.launcher.kind == "deepspeed" else None
    if launched is None and log.may_name_ranks():
        launched = num_started_ranks(attempt.launcher_log)
    if not launched:
        return ranks
    return replace(ranks, logged_ok=num_finished_ranks(log.path for log in host_logs(attempt)), launched=launched)


def _last_events(path: Path) -> list[dict[str, Any]]:
    """A rank's newest events, without lines of another run or attempt."""
    first = next(files.read_json_lines(path), {})
    own = (first.get("run"), first.get("attempt"))
    # While the disk fails, the newest are in the fallback.
    fallback = fallback_entry(path)
    newest = [event for source in (path, fallback) if source for event in files.last_json_lines(source, LAST_EVENTS)]
    return [event for event in newest if (event.get("run"), event.get("attempt")) == own]


def _steps(stop: dict[str, Any]) -> int:
    steps = stop.get("steps")
    return steps if isinstance(steps, int) else 0


@dataclass(frozen=True, kw_only=True)
class StallLocation:
    """Where a run was when a limit was exceeded; empty where unknown."""

    rank: int | None = None
    phase: str = ""
    frame: str = ""
    cause: Cause | None = None
    """A better cause than the alarm's, where the stacks show one."""

    @property
    def clause(self) -> str:
        """The end of the alarm's sentence."""
        who = "" if self.rank is None else f"rank {self.rank} "
        if self.cause is Cause.SUSPENDED:
            return f"; {who}is suspended (SIGSTOP), at {self.frame or 'an unknown line'}"
        return f"; {who}was at {self.frame}" if self.frame else ""

    @property
    def action(self) -> str:
        return advice(self.cause) if self.cause is not None else ""


def locate_stall(attempt: AttemptPaths, alarm: Alarm | None) -> StallLocation:
    """The rank that holds the others up: a suspended one; else the alarm's own; else the only one whose stack is known."""
    if alarm is None:
        return StallLocation()
    stacks = read_stacks(attempt)
    # Ranks come first; where none is suspended, it may be their launcher.
    suspended = next((stack for stack in stacks if stack.state == STOPPED), None)
    if suspended is not None and alarm.cause in (Cause.STALL, Cause.START_LIMIT):
        return StallLocation(rank=suspended.rank, phase=alarm.phase, frame=main_frame(suspended), cause=Cause.SUSPENDED)
    stack = _stack_of(alarm.rank, stacks)
    rank = alarm.rank if alarm.rank is not None or stack is None else stack.rank
    return StallLocation(rank=rank, phase=alarm.phase, frame=main_frame(stack) if stack else "")


def _stack_of(rank: int | None, stacks: tuple[RankStack, ...]) -> RankStack | None:
    """The stack of `rank`; where that is unknown, of a rank that does not wait for others; a launcher's only as the last resort."""
    if rank is not None:
        return next((stack for stack in stacks if stack.rank == rank), None)
    ranks = [stack for stack in stacks if stack.rank is not None]
    working = [stack for stack in ranks if not is_in_collective(stack)]
    return next(iter([*working, *ranks, *(stack for stack in stacks if stack.of_rank is None)]), None)


def with_host(detail: str, host: str) -> str:
    return f"on {host}: {detail}" if host and detail and host not in detail else detail


def with_host_log(action: str, host: str, nodes: Sequence[NodeRecord]) -> str:
    """Advice that names the log of the host that failed: launcher.log is the first host's."""
    first = next((node.name for node in nodes if node.node_rank == 0), "")
    return action.replace(ATTEMPT_FILES.launcher_log.name, str(ATTEMPT_FILES.node(host).launcher_log)) if host and host != first else action


def mask_outcome(outcome: RunOutcome, spec: RunSpec, caller: Mapping[str, str]) -> RunOutcome:
    """The outcome without secrets. `spec` is unmasked, `caller` is the environment the run was started from."""
    args = (*spec.launcher.program, *spec.launcher.args, *spec.workload.args)
    settings, axes = ({name: value for name, value in values.items() if isinstance(value, str)} for values in (spec.settings, spec.axes))
    # Separately: the same name may have another value in each.
    known = {secret for named in (caller, spec.env, settings, axes) for secret in collect_secrets(named, args)}
    log_tail, telling, excerpt = (mask_lines(lines, known) for lines in (outcome.log_tail, outcome.telling, outcome.excerpt))
    detail, may_have_failed = mask_text(outcome.detail, known), mask_text(outcome.may_have_failed, known)
    return replace(outcome, detail=detail, may_have_failed=may_have_failed, log_tail=log_tail, telling=telling, excerpt=excerpt)
