"""One run from its spec to its outcome: take a port, write the command, start the agent, follow it, say how it ended.

Goes in: a RunSpec and the campaign's folder. Comes out: a RunOutcome, which is also the file written last, so that its presence
means that the attempt is over. A run that fails, or cannot even be started, is an outcome and not an exception.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from seatrial import files
from seatrial.campaign.code_folder import code_folder
from seatrial.campaign.ending import Ending, Judgement, RankRecord, judge_ending
from seatrial.campaign.interrupts import Interrupts, Urgency
from seatrial.campaign.masking import masked_outcome
from seatrial.collect.failure import diagnose
from seatrial.errors import LaunchError
from seatrial.launch.agent_process import AgentProcess
from seatrial.launch.environment import environment, tuning_variables
from seatrial.launch.places.local import allocate
from seatrial.launch.prepare import masked_spec, prepare
from seatrial.machine.provenance import gather
from seatrial.observe.progress import Progress, ProgressReader
from seatrial.observe.spike import SpikeWatch
from seatrial.observe.watchdog import Alarm, alarm
from seatrial.paths import AttemptPaths, RunPaths
from seatrial.records.codec import to_json
from seatrial.records.command import Allocation, Command, Provenance
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec

AGENT_WAIT_S = 0.2
PROGRESS_EVERY_S = 1.0
# After KILL was asked for, the agent needs a moment to see everything gone; beyond this it is taken for lost.
KILL_PATIENCE_S = 15.0
FAILURE_TAIL_LINES = 80
DIAGNOSIS_LINES = 2000
DIAGNOSIS_BYTES = 200_000

OnProgress = Callable[[Progress, float, str], None]
"""How far it is, the time since its launch, and its newest alarm in one sentence."""
OnStop = Callable[[], None]


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
            ending = _Follower(spec, attempt, interrupts, on_progress, on_stop).follow()
        outcome = _outcome(spec, attempt, ending, started_t, allocation.master_port)
    except LaunchError as error:
        outcome = _not_started(spec, attempt, error, started_t)
    outcome = masked_outcome(outcome, spec, os.environ)
    files.write_json(attempt.outcome, to_json(outcome))
    link_current(RunPaths(attempt.folder.parent), attempt)
    return outcome


def _provenance(spec: RunSpec, attempt: AttemptPaths, command: Command, allocation: Allocation, plan_hash: str) -> Provenance:
    return gather(
        Path(spec.cwd),
        allocation.devices,
        program=command.argv,
        env={**os.environ, **command.env},
        tuning=tuning_variables(spec, os.environ),
        environment={variable.name: variable.value for variable in environment(spec, allocation, attempt, os.environ)},
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
        files.link_relative(run.folder / name, path)


def rank_record(attempt: AttemptPaths) -> RankRecord:
    """What the ranks left in their event files."""
    endings = [files.last_json_line(path) or {} for path in attempt.all_events()]
    done = [last for last in endings if last.get("kind") == "stop"]
    stepped = any(last.get("kind") == "step" or (last.get("steps") or 0) > 0 for last in endings)
    least_steps = min((int(last.get("steps") or 0) for last in done), default=0)
    return RankRecord(started=len(endings), done=len(done), stepped=stepped, least_steps=least_steps)


class _Follower:
    """Follows one agent to its end, passing limits and the user's wishes on to it."""

    def __init__(self, spec: RunSpec, attempt: AttemptPaths, interrupts: Interrupts, on_progress: OnProgress, on_stop: OnStop) -> None:
        self._spec, self._attempt, self._interrupts = spec, attempt, interrupts
        self._on_progress, self._on_stop = on_progress, on_stop
        self._reader = ProgressReader(spec, attempt)
        self._asked = Urgency.NONE
        self._alarm: Alarm | None = None
        self._spikes, self._told = SpikeWatch(spec.limits.spike_ratio), ""
        self._progress = Progress(total=spec.steps)
        self._returncode: int | None = None
        self._exited_s: float | None = None

    def follow(self) -> Ending:
        agent = AgentProcess.start(self._attempt)
        launched_m = time.monotonic()
        looked_m = kill_m = -1.0
        try:
            while True:
                for report in agent.wait(AGENT_WAIT_S):
                    if report.kind == "exited":
                        self._returncode = report.returncode
                        self._exited_s = time.monotonic() - launched_m
                    elif report.kind in ("gone", "lost"):
                        return self._ending(report.killed, report.kind == "lost", time.monotonic() - launched_m)
                now_m = time.monotonic()
                if now_m - looked_m >= PROGRESS_EVERY_S:
                    looked_m = now_m
                    self._look(now_m - launched_m)
                if self._pass_on(agent) is Urgency.KILL and kill_m < 0:
                    kill_m = now_m
                if 0 <= kill_m < now_m - KILL_PATIENCE_S:
                    return self._ending(0, True, now_m - launched_m)
        finally:
            agent.close()

    def _look(self, elapsed_s: float) -> None:
        try:
            self._take_in(elapsed_s)
        except Exception as error:
            # Whatever a script prints and however full the disk is: looking on must not end the run that is looked at.
            self._told = f"its progress could not be told ({type(error).__name__}: {error}); the run goes on"
        if self._alarm is None and self._returncode is None:
            self._alarm = alarm(self._progress, elapsed_s, self._spec.limits)

    def _take_in(self, elapsed_s: float) -> None:
        self._progress = self._reader.look()
        spike = self._spikes.look(self._progress, time.time())
        if spike:
            self._told = spike.text
            files.append_line(self._attempt.alarms, json.dumps(to_json(spike)))
        self._on_progress(self._progress, elapsed_s, self._told)

    def _pass_on(self, agent: AgentProcess) -> Urgency:
        urgency = self._interrupts.urgency
        wanted = max(urgency, Urgency.STOP if self._alarm else Urgency.NONE)
        if wanted > self._asked:
            if urgency is Urgency.STOP:
                self._on_stop()
            self._asked = wanted
            (agent.kill if wanted is Urgency.KILL else agent.stop)()
        return self._asked

    def _ending(self, killed: int, lost: bool, elapsed_s: float) -> Ending:
        return Ending(
            returncode=self._returncode,
            killed=killed,
            alarm=self._alarm,
            interrupted=self._interrupts.urgency is not Urgency.NONE and self._asked is not Urgency.NONE,
            agent_lost=lost,
            # What a run left behind and the agent had to end is not part of its length.
            elapsed_s=elapsed_s if self._exited_s is None else self._exited_s,
        )


def _outcome(spec: RunSpec, attempt: AttemptPaths, ending: Ending, started_t: float, port: int) -> RunOutcome:
    ranks = rank_record(attempt)
    # A script may hold the probe in rank 0 only, and `--nproc-per-node gpu` leaves the number of ranks to torchrun.
    bundled = spec.workload.module is not None
    judged = judge_ending(ending, ranks, spec.place.ranks if bundled else ranks.started, spec.steps if bundled else None)
    if judged.needs_log:
        found = diagnose(ending.returncode, files.tail_lines(attempt.launcher_log, DIAGNOSIS_LINES, DIAGNOSIS_BYTES))
        judged = Judgement(outcome=judged.outcome, cause=found.cause, detail=found.detail, action=found.action)
    failed = judged.outcome is not Outcome.OK
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=judged.outcome,
        cause=judged.cause,
        detail=judged.detail,
        action=judged.action,
        exit_code=ending.returncode,
        started_t=started_t,
        ended_t=started_t + ending.elapsed_s,
        duration_s=ending.elapsed_s,
        port=port,
        killed=ending.killed,
        log_tail=tuple(files.tail_lines(attempt.launcher_log, FAILURE_TAIL_LINES)) if failed else (),
    )


def _not_started(spec: RunSpec, attempt: AttemptPaths, error: LaunchError, started_t: float) -> RunOutcome:
    if not attempt.spec.exists():
        files.write_json(attempt.spec, to_json(masked_spec(spec)))
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=Outcome.FAILED,
        cause=Cause.PROGRAM_MISSING,
        detail=str(error),
        action="install the program or name it in full, then run again",
        started_t=started_t,
        ended_t=time.time(),
    )
