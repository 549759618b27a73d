"""The program in a Slurm job for many runs: `python -m seatrial.campaign.slurm_allocation_program ALLOCATION`.

It runs the campaign's own loop on the first of the job's nodes: one run after another, each as an attempt in its run's folder, until all
are over or the job has too little time left for the next. Then it writes job_end.json. After a requeue it closes the attempt that was cut
short and continues. Where Slurm ends the job it writes no job_end.json: the harness that follows the job learns the reason.

`sbatch job.sbatch` by hand does the same. Not in `campaign.slurm`: it imports `campaign.loop`, which imports that package.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial.campaign.early_end import CampaignEnd
from seatrial.campaign.loop import run_in_job
from seatrial.campaign.slurm.program import CurrentJob, close_cut_short, refuse_second_job, start_record
from seatrial.campaign.slurm.signals import JobSignals
from seatrial.core.durable_writes import write_json_durably
from seatrial.core.errors import FAILED, SeatrialError
from seatrial.core.paths import AllocationPaths, CampaignPaths
from seatrial.launch.places import job_files
from seatrial.records.caution import Check
from seatrial.records.codec import to_json
from seatrial.records.job import AllocationEnd, AllocationEnding
from seatrial.records.outcome import Outcome, Resumption, RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.results import LiveState, MeasuredRun


def run_allocation(paths: AllocationPaths, environ: Mapping[str, str] = os.environ) -> AllocationEnd | None:
    """Run job_order.json of `paths`; None where Slurm ended the job."""
    order = job_files.read_allocation_order(paths)
    if order is None or not order.specs:
        raise SeatrialError(f"{paths.job_order} cannot be read: start the campaign again with `seatrial run`")
    refuse_second_job([paths], environ.get("SLURM_JOB_ID", ""))
    campaign = CampaignPaths(paths.campaign)
    for spec in order.specs:
        close_cut_short(campaign.run(spec.run), spec, environ)
    restarts = int(environ.get("SLURM_RESTART_COUNT", "0") or 0)
    signals = JobSignals(paths.job_stop, lambda: _is_replaced(paths, restarts))
    signals.install()
    job = CurrentJob(environ, signals)
    job_files.record_start(paths, start_record(environ, job.nodes))
    end = run_in_job(order, campaign, job, signals, LogListener())
    if signals.ended or signals.closed:
        return None
    closed = _end(end, signals)
    write_json_durably(paths.job_end, to_json(closed))
    return closed


def _is_replaced(paths: AllocationPaths, restarts: int) -> bool:
    """Whether Slurm has started the job again elsewhere, of which a program whose slurmd died is not informed."""
    begun = job_files.started(paths)
    return paths.job_end.exists() or (begun is not None and begun.restarts > restarts)


def _end(end: CampaignEnd, signals: JobSignals) -> AllocationEnd:
    found = [
        (AllocationEnding.TIME_LIMIT, signals.warned, "the job was warned of its time limit"),
        (AllocationEnding.USER, signals.asked, "stopped by the user"),
        (AllocationEnding.TIME_LEFT, end.job_too_short, end.reason),
        (AllocationEnding.NODE_LOST, end.jobs_ended, end.reason),
        (AllocationEnding.BUDGET, end.out_of_budget, end.reason),
        (AllocationEnding.ENDED, end.disk_trouble or end.stopped_on_error or end.repeated_failure, end.reason),
        (AllocationEnding.DONE, True, ""),
    ]
    ending, _, detail = next(one for one in found if one[1])
    return AllocationEnd(ending=ending, detail=detail, ended_t=time.time())


class LogListener:
    """The campaign as job.log shows it."""

    def warned(self, checks: Sequence[Check]) -> None:
        """Shown by the harness."""

    def skipped(self, spec: RunSpec, changes: str) -> None:
        _log(f"{spec.run}: already finished, skipped")

    def resumes(self, spec: RunSpec, resumption: Resumption) -> None:
        _log(f"{spec.run}: {resumption.text}")

    def noted(self, text: str) -> None:
        _log(text)

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        _log(f"[{position}/{count}] {spec.run}: started")

    def progress(self, state: LiveState) -> None:
        """Published in progress.json."""

    def stopping(self, spec: RunSpec) -> None:
        _log(f"{spec.run}: stopping")

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        _log(f"{spec.run}: {outcome.outcome.value}{f' ({outcome.detail})' if outcome.outcome is not Outcome.OK else ''}")


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    try:
        end = run_allocation(AllocationPaths(Path(sys.argv[1]).absolute()))
    except SeatrialError as error:
        _log(f"seatrial: {error}")
        return FAILED
    _log(f"{end.ending.value}: {end.detail or 'the job ends'}" if end else "Slurm ends the job")
    return 0 if end else FAILED


if __name__ == "__main__":
    sys.exit(main())
