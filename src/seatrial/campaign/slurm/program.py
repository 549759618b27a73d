"""The program in a Slurm job: the harness of one run, on the first of the job's nodes.

    python -m seatrial.campaign.slurm.program ATTEMPT

It runs the attempt like one on many hosts, with agents started by srun, and writes outcome.json. When Slurm ends the job, the program does
not know why: TERM is sent for a cancellation, a preemption, a time limit and a requeue. What it saw goes to job_outcome.json; the harness
that follows the job adds Slurm's reason. After a requeue it closes the attempt that was cut short and begins the run's next one: attempts
never share a file.

`sbatch job.sbatch` by hand does the same. Every program that runs attempts within a job uses `CurrentJob`.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial.campaign.follow import OnProgress, OnStop
from seatrial.campaign.interrupts import StopRequests
from seatrial.campaign.live_log import LiveLog
from seatrial.campaign.one_run import close_attempt, new_attempt, run_one, unstarted
from seatrial.campaign.resume import choose_checkpoint
from seatrial.campaign.slurm import RUN_PROGRAM
from seatrial.campaign.slurm.outcomes import ended_by_slurm, judge_job, requeued, with_cause
from seatrial.campaign.slurm.signals import JobSignals
from seatrial.core import files
from seatrial.core.durable_writes import write_json_durably
from seatrial.core.errors import FAILED, HostError, SeatrialError
from seatrial.core.paths import AllocationPaths, AttemptPaths, RunPaths
from seatrial.core.text import format_duration
from seatrial.launch.places import job_files
from seatrial.launch.places import slurm as slurm_place
from seatrial.machine import slurm
from seatrial.machine.secrets import mask
from seatrial.observe.progress import Progress
from seatrial.preflight.hosts.run_checks import host_facts
from seatrial.preflight.software import problems_on_node
from seatrial.records.attempt import HostFacts
from seatrial.records.codec import to_json
from seatrial.records.job import JobOrder, StartedJob, SubmittedJob
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.stored import accepted_outcome, read_nodes

FACTS_TIMEOUT_S = 15.0
# Of the registry of signatures.
REFUSED_ON_NODE = "trainer_refused"
RECORDED = ("SLURM_", "SBATCH_", "CUDA_VISIBLE_DEVICES")


def run_attempt(first: AttemptPaths, environ: Mapping[str, str] = os.environ) -> RunOutcome:
    """Run job_order.json of `first`, as `first` or, where that was started before, as the next attempt."""
    order = job_files.read_order(first)
    if order is None:
        raise SeatrialError(f"{first.job_order} cannot be read: submit the run again with `seatrial run`")
    refuse_second_job(RunPaths(first.folder.parent).attempts(), environ.get("SLURM_JOB_ID", ""))
    attempt = _own_attempt(first, order, environ)
    signals = JobSignals(attempt.job_stop, attempt.outcome.exists)
    signals.install()
    return CurrentJob(environ, signals).run(order.spec, attempt, signals, plan_hash=order.plan_hash)


def refuse_second_job(attempts: Sequence[AttemptPaths] | Sequence[AllocationPaths], own: str) -> None:
    """A SeatrialError where another live job has one of them, as when job.sbatch is submitted by hand a second time."""
    closed = [one.job_end.exists() if isinstance(one, AllocationPaths) else one.outcome.exists() for one in attempts]
    found = [(one, job_files.submitted(one)) for one, is_closed in zip(attempts, closed, strict=True) if not is_closed]
    others = [(one, job.job) for one, job in found if job is not None and job.job != own]
    known = slurm.own_jobs() if others else {}
    for one, job in others:
        if known is None or (job in known and not known[job].is_over):
            state = "may still run" if known is None else "waits for" if known[job].is_queued else "runs"
            raise SeatrialError(f"job {job} {state} {one.folder}: wait until it is over, or `scancel {job}`, and submit it again")


class CurrentJob:
    """The job around this process: ours, with the program's `signals`, or the user's (salloc), in which a harness was started. Its nodes
    run one attempt after another."""

    def __init__(self, environ: Mapping[str, str] = os.environ, signals: JobSignals | None = None) -> None:
        self._environ, self._signals = environ, signals
        self.number = environ.get("SLURM_JOB_ID", "")
        self.nodes = slurm.host_names(environ.get("SLURM_JOB_NODELIST", ""))
        self._facts: dict[str, HostFacts] | None = None

    def run(
        self,
        spec: RunSpec,
        attempt: AttemptPaths,
        requests: StopRequests,
        on_progress: OnProgress = lambda *_: None,
        on_stop: OnStop = lambda: None,
        plan_hash: str = "",
        log: LiveLog | None = None,
    ) -> RunOutcome:
        """Run `spec` as `attempt`, and close it unless its outcome depends on Slurm's reason."""
        names, environ = self.nodes, self._environ
        job_files.record_start(attempt, start_record(environ, names))
        if self._signals is not None:
            # If this program ends early, the harness that follows the job closes the attempt.
            if not attempt.job.exists():
                job_files.record(attempt, SubmittedJob(job=self.number, submitted_t=time.time()))
            _log(f"{spec.run}, attempt {attempt.number}: job {self.number} on {', '.join(names)}")
        placed = slurm_place.nodes_of_job(spec, environ, names)
        # Once per job: the hardware of its nodes does not change.
        facts = self._facts = _facts_of_nodes(spec, names) if self._facts is None else self._facts
        shown = self._signals is None

        def show_rendezvous(progress: Progress, elapsed_s: float, quiet_s: float, alarm: str) -> None:
            nonlocal shown
            shown = shown or _log_rendezvous(attempt)
            on_progress(progress, elapsed_s, quiet_s, alarm)

        if problems := problems_on_node(spec, {**environ, **spec.env}):
            refused = HostError(f"refused before a rank was started: {'; '.join(problems)}", host=names[0], cause=REFUSED_ON_NODE)
            outcome = unstarted(spec, attempt, refused, time.time())
        else:
            outcome = run_one(placed, attempt, requests, show_rendezvous, on_stop, plan_hash, hosts=facts, log=log)
        if self._signals is None:
            return close_attempt(attempt, self._with_slurms_reason(attempt, spec, outcome))
        return _close(attempt, outcome, self._signals, environ)

    def too_short_for(self, spec: RunSpec, expected_s: float | None) -> str:
        """Why `spec` should start in another job; empty where it can start in this one."""
        left_s = slurm.time_left_s(self.number)
        usable_s = None if left_s is None else left_s - (spec.place.slurm.warn_s if spec.place.slurm else 0)
        if usable_s is None or usable_s > (expected_s or 0.0):
            return ""
        took = f", and a run like {spec.run} took {format_duration(expected_s)}" if expected_s else f": too little for {spec.run}"
        return f"Slurm job {self.number} has {format_duration(left_s)} left{took}"

    def _with_slurms_reason(self, attempt: AttemptPaths, spec: RunSpec, outcome: RunOutcome) -> RunOutcome:
        """A run that failed because the job around it ended is not a failed run."""
        known = None if outcome.outcome in (Outcome.OK, Outcome.INTERRUPTED) else slurm.own_jobs()
        if known is None or (self.number in known and not known[self.number].is_over):
            return outcome
        judged = judge_job(attempt, spec, self.number, known.get(self.number) or slurm.final_state(self.number))
        return with_cause(outcome, judged.cause, judged.detail, judged.outcome)


def _facts_of_nodes(spec: RunSpec, names: Sequence[str]) -> dict[str, HostFacts]:
    """Hardware facts of the nodes, for the provenance. A node that does not answer has none; the run goes on."""
    if len(names) < 2:
        return {}
    question = {"ask": "all", "parts": {"facts": {"ask": "facts"}, "gpus": {"ask": "gpus"}}}
    facts = host_facts(slurm_place.ask_nodes(names, question, FACTS_TIMEOUT_S, spec.place.python))
    if missing := [name for name in names if name not in facts]:
        _log(f"No hardware facts from {', '.join(missing)}. Differing nodes go unnoticed.")
    return facts


def _log_rendezvous(attempt: AttemptPaths) -> bool:
    """Log the rendezvous as each node sees it, and its interface; False while that is unknown."""
    record = read_nodes(attempt)[0]
    if record is None:
        return False
    for node in record.nodes:
        nic = f"{node.interface} {node.address}" if node.interface else "unknown"
        _log(f"{node.name}: {node.ranks} ranks from {node.first_rank}, rendezvous {record.master_addr}:{record.master_port}, NIC {nic}")
    return True


def _own_attempt(first: AttemptPaths, order: JobOrder, environ: Mapping[str, str]) -> AttemptPaths:
    """`first`, or the run's next attempt where Slurm has started the job before."""
    if job_files.started(first) is None and not first.outcome.exists():
        return first
    run = RunPaths(first.folder.parent)
    close_cut_short(run, order.spec, environ)
    attempt = new_attempt(run, choose_checkpoint(run, order.spec) if order.resumes else None)
    files.write_private_json(attempt.job_order, to_json(order))
    files.write_text(attempt.job_script, slurm_place.script(order, attempt, RUN_PROGRAM), files.PRIVATE_PROGRAM)
    return attempt


def close_cut_short(run: RunPaths, spec: RunSpec, environ: Mapping[str, str]) -> None:
    """Close the attempts of this job's earlier start."""
    job = environ.get("SLURM_JOB_ID", "")
    for earlier in run.attempts():
        if not earlier.outcome.exists() and (found := job_files.submitted(earlier)) and found.job == job:
            close_attempt(earlier, requeued(earlier, spec, job, int(environ.get("SLURM_RESTART_COUNT", "1") or 1)))


def start_record(environ: Mapping[str, str], names: tuple[str, ...]) -> StartedJob:
    return StartedJob(
        job=environ.get("SLURM_JOB_ID", ""),
        started_t=time.time(),
        restarts=int(environ.get("SLURM_RESTART_COUNT", "0") or 0),
        nodes=names or (socket.gethostname(),),
        # SLURM_JWT is one of them.
        variables={name: mask(name, value) for name, value in sorted(environ.items()) if name.startswith(RECORDED)},
    )


def _close(attempt: AttemptPaths, outcome: RunOutcome, signals: JobSignals, environ: Mapping[str, str]) -> RunOutcome:
    closed = accepted_outcome(attempt)
    if closed is not None:
        # Another start of the job continued the run: what this program did since then does not count.
        _log(f"Attempt {attempt.number} was already closed ({closed.detail}). This outcome ('{outcome.outcome.value}') is discarded.")
        return closed
    if outcome.outcome is Outcome.OK:
        return close_attempt(attempt, outcome)
    if signals.ended:
        # The reason is known only when the job is over.
        seen = ended_by_slurm(outcome)
        write_json_durably(attempt.job_outcome, to_json(seen))
        return seen
    if signals.warned and outcome.outcome is Outcome.INTERRUPTED:
        detail = f"Slurm job {environ.get('SLURM_JOB_ID')} was warned of its time limit, and its ranks were halted"
        return close_attempt(attempt, with_cause(outcome, Cause.JOB_TIME_LIMIT, detail))
    return close_attempt(attempt, outcome)


def _log(text: str) -> None:
    """Write a line to job.log."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    attempt = AttemptPaths(Path(sys.argv[1]).absolute())
    try:
        outcome = run_attempt(attempt)
    except SeatrialError as error:
        _log(f"seatrial: {error}")
        return FAILED
    _log(f"{outcome.outcome.value}: {outcome.detail or 'done'}")
    return 0 if outcome.outcome is Outcome.OK else FAILED


if __name__ == "__main__":
    sys.exit(main())
