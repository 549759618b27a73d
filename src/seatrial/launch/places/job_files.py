"""The files of a job, in the folder of its attempt or allocation: its order, its submission and its start.

All that a loop over jobs knows of a job comes from here or through a `JobPlace`. The files are private: a LaunchError for one that
another user may have written, since its job would be started or cancelled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.core.errors import LaunchError
from seatrial.core.files import write_private_json
from seatrial.core.paths import AllocationPaths, AttemptPaths, JobPaths
from seatrial.core.private_files import NotPrivateError, read_private_json
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.job import AllocationOrder, JobOrder, JobStatus, StartedJob, SubmittedJob

_JOB_ID = re.compile(r"[0-9]+(?:[_+][0-9]+)?")


def read_order(attempt: AttemptPaths) -> JobOrder | None:
    """The order of a job; None where there is none."""
    return from_json_or_none(JobOrder, _read_private(attempt.job_order))


def read_allocation_order(paths: AllocationPaths) -> AllocationOrder | None:
    """The order of a job for many runs, likewise."""
    return from_json_or_none(AllocationOrder, _read_private(paths.job_order))


def _read_private(path: Path) -> Any | None:
    try:
        return read_private_json(path)
    except NotPrivateError as error:
        raise LaunchError(str(error)) from error


def record(paths: JobPaths, job: SubmittedJob) -> SubmittedJob:
    write_private_json(paths.job, to_json(job))
    return job


def submitted(paths: JobPaths) -> SubmittedJob | None:
    """The job of an attempt or an allocation by its folder: as the harness recorded it; if the harness was killed just
    after the submission, as the started job did."""
    found = from_json_or_none(SubmittedJob, _read_private(paths.job))
    # It becomes an argument of the scheduler's programs, which also accept options.
    if found is not None and not _JOB_ID.fullmatch(found.job):
        return None
    if found is None and (begun := started(paths)) and _JOB_ID.fullmatch(begun.job):
        return SubmittedJob(job=begun.job, submitted_t=begun.started_t)
    return found


def job_among(paths: JobPaths, known: Mapping[str, JobStatus]) -> str:
    """The job's number: from the folder, else of the job in `known` whose comment names the folder; else empty."""
    found = submitted(paths)
    own = str(paths.folder.absolute())
    return found.job if found else next((job for job, status in known.items() if status.comment == own), "")


def pick_up(paths: JobPaths, known: Mapping[str, JobStatus] | None = None) -> SubmittedJob | None:
    """The job of an earlier process; one that only `known` names is recorded."""
    job = submitted(paths)
    number = job_among(paths, known) if job is None and known is not None else ""
    return record(paths, SubmittedJob(job=number, submitted_t=time.time())) if number else job


def started(paths: JobPaths) -> StartedJob | None:
    return from_json_or_none(StartedJob, _read_private(paths.job_start))


def record_start(paths: JobPaths, begun: StartedJob) -> None:
    write_private_json(paths.job_start, to_json(begun))
