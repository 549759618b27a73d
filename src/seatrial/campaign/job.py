"""The program in a Slurm job: the harness of this one run, on the first of the job's nodes. `python -m seatrial.campaign.job ATTEMPT`.

It runs the attempt as a harness runs one on many hosts, with agents that srun starts, and writes outcome.json. Where Slurm ends the job it
does not know why (TERM means a cancelled job, a preemption, a time limit or a requeue alike): what it saw goes to job_outcome.json, and
whoever follows the job adds Slurm's reason. Started again by Slurm (a requeue), it closes the attempt that was cut short and begins the
run's next one: attempts never share a file.

`sbatch job.sbatch` by hand does the same.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from seatrial.campaign.interrupts import Urgency
from seatrial.campaign.job_endings import ended_by_slurm, requeued, with_cause
from seatrial.campaign.one_run import close_attempt, new_attempt, run_to_outcome
from seatrial.campaign.resume import choose_checkpoint
from seatrial.core import files
from seatrial.core.durable import write_json_durably
from seatrial.core.errors import FAILED, SeatrialError
from seatrial.core.paths import AttemptPaths, RunPaths
from seatrial.launch.places import slurm as jobs
from seatrial.machine import slurm
from seatrial.machine.network import match_nccl_interfaces
from seatrial.machine.secrets import mask
from seatrial.preflight.hosts.examine import host_facts
from seatrial.records.attempt import HostFacts
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.job import JobOrder, StartedJob, SubmittedJob
from seatrial.records.launch import NodesRecord
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import RunSpec

# A poll looks for two small files, perhaps over a network.
STOP_POLL_S = 0.5
FACTS_TIMEOUT_S = 15.0
RECORDED = ("SLURM_", "SBATCH_", "CUDA_VISIBLE_DEVICES")


class JobSignals:
    """Requests to end the run: the harness's (job_stop.json), Slurm's warning before the time limit (USR1), and its end (TERM).

    A program that Slurm has lost sight of (its slurmd died) gets no signal when the job is started again elsewhere: it finds that its
    attempt has an outcome, and ends its ranks.
    """

    def __init__(self, attempt: AttemptPaths) -> None:
        self._attempt = attempt
        self.ended = self.warned = self.asked = self.closed = False
        self._polled_m = float("-inf")

    def install(self) -> None:
        signal.signal(signal.SIGUSR1, self._on_warning)
        signal.signal(signal.SIGTERM, self._on_end)
        signal.signal(signal.SIGINT, self._on_end)

    @property
    def urgency(self) -> Urgency:
        self._poll()
        # After TERM there may be only seconds: the ranks have got it too.
        if self.ended or self.closed:
            return Urgency.KILL
        return Urgency.STOP if self.warned or self.asked else Urgency.NONE

    def stop_requested(self) -> bool:
        return self.urgency is not Urgency.NONE

    def _poll(self) -> None:
        now_m = time.monotonic()
        if now_m - self._polled_m >= STOP_POLL_S:
            self._polled_m = now_m
            self.asked = self.asked or self._attempt.job_stop.exists()
            self.closed = self.closed or self._attempt.outcome.exists()

    def _on_warning(self, number: int, frame: FrameType | None) -> None:
        self.warned = True

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        self.ended = True


def run_attempt(first: AttemptPaths, environ: Mapping[str, str] = os.environ) -> RunOutcome:
    """Run what job_order.json of `first` says, as `first` or, where that has been started before, as the next attempt."""
    order = jobs.read_order(first)
    if order is None:
        raise SeatrialError(f"{first.job_order} cannot be read: submit the run again with `seatrial run`")
    attempt = _own_attempt(first, order, environ)
    signals = JobSignals(attempt)
    signals.install()
    names = slurm.host_names(environ.get("SLURM_JOB_NODELIST", ""))
    files.write_json(attempt.job_start, to_json(start_record(environ, names)))
    _log(f"{order.spec.run}, attempt {attempt.number}: job {environ.get('SLURM_JOB_ID')} on {', '.join(names)}")
    spec = jobs.nodes_of_job(order.spec, environ, names)
    facts = _facts_of_nodes(spec, names)
    shown = False

    def show_rendezvous(*progress: object) -> None:
        nonlocal shown
        shown = shown or _log_rendezvous(attempt, facts, spec)

    outcome = run_to_outcome(spec, attempt, signals, show_rendezvous, lambda: None, order.plan_hash, hosts=facts)
    return _close(attempt, outcome, signals, environ)


def _facts_of_nodes(spec: RunSpec, names: Sequence[str]) -> dict[str, HostFacts]:
    """For the provenance, so that unlike nodes are noticed. A node that does not answer costs its facts, never the run."""
    if len(names) < 2:
        return {}
    question = {"ask": "all", "parts": {"facts": {"ask": "facts"}, "gpus": {"ask": "gpus"}}}
    facts = host_facts(jobs.ask_nodes(names, question, FACTS_TIMEOUT_S, spec.place.python))
    if missing := [name for name in names if name not in facts]:
        _log(f"no hardware facts of {', '.join(missing)}: unlike nodes would not be noticed")
    return facts


def _log_rendezvous(attempt: AttemptPaths, facts: Mapping[str, HostFacts], spec: RunSpec) -> bool:
    """Where the ranks of each node meet, and by which of its interfaces; False where that is not known yet."""
    record = from_json_or_none(NodesRecord, files.read_json(attempt.nodes_record))
    if record is None:
        return False
    for node in record.nodes:
        nics = facts[node.name].interfaces if node.name in facts else {}
        used = match_nccl_interfaces(spec.place.interface, nics) if spec.place.interface else list(nics)
        shown = ", ".join(f"{name} {' '.join(nics[name])}" for name in used) or "unknown"
        _log(f"{node.name}: {node.ranks} ranks from {node.first_rank}, rendezvous {record.master_addr}:{record.master_port}, NIC {shown}")
    return True


def _own_attempt(first: AttemptPaths, order: JobOrder, environ: Mapping[str, str]) -> AttemptPaths:
    """`first`, or the run's next attempt where Slurm has started the job before."""
    if jobs.started(first) is None and not first.outcome.exists():
        return first
    run, job = RunPaths(first.folder.parent), environ.get("SLURM_JOB_ID", "")
    for earlier in run.attempts():
        if not earlier.outcome.exists() and (found := jobs.submitted(earlier)) and found.job == job:
            close_attempt(earlier, requeued(earlier, order.spec, job, int(environ.get("SLURM_RESTART_COUNT", "1") or 1)))
    attempt = new_attempt(run, choose_checkpoint(run, order.spec) if order.resumes else None)
    files.write_private_json(attempt.job_order, to_json(order))
    files.write_text(attempt.job_script, jobs.script(order.spec, attempt), files.PRIVATE_PROGRAM)
    jobs.record(attempt, SubmittedJob(job=job, submitted_t=time.time()))
    return attempt


def start_record(environ: Mapping[str, str], names: tuple[str, ...]) -> StartedJob:
    return StartedJob(
        job=environ.get("SLURM_JOB_ID", ""),
        started_t=time.time(),
        restarts=int(environ.get("SLURM_RESTART_COUNT", "0") or 0),
        nodes=names or (socket.gethostname(),),
        # SLURM_JWT among them.
        variables={name: mask(name, value) for name, value in sorted(environ.items()) if name.startswith(RECORDED)},
    )


def _close(attempt: AttemptPaths, outcome: RunOutcome, signals: JobSignals, environ: Mapping[str, str]) -> RunOutcome:
    closed = from_json_or_none(RunOutcome, files.read_json(attempt.outcome))
    if closed is not None:
        # The run has gone on without this program: what it did since counts for nothing.
        _log(f"attempt {attempt.number} was closed meanwhile ({closed.detail}); '{outcome.outcome.value}' of this program is not kept")
        return closed
    if outcome.outcome is Outcome.OK:
        return close_attempt(attempt, outcome)
    if signals.ended:
        # Why is known only when the job is over.
        seen = ended_by_slurm(outcome)
        write_json_durably(attempt.job_outcome, to_json(seen))
        return seen
    if signals.warned and outcome.outcome is Outcome.INTERRUPTED:
        detail = f"Slurm job {environ.get('SLURM_JOB_ID')} was warned of its time limit, and its ranks were halted"
        return close_attempt(attempt, with_cause(outcome, Cause.JOB_TIME_LIMIT, detail))
    return close_attempt(attempt, outcome)


def _log(text: str) -> None:
    """To job.log."""
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
