"""Slurm: a run as a job. The script of the job, its submission, and which nodes it got.

The job is autonomous: `job.sbatch` starts one program on the first of its nodes (`seatrial.campaign.job`), which does there for this one
run what the harness does for others, and writes outcome.json. The harness only submits, looks and cancels. It can therefore be killed, or
its login node can go away, and another one picks the jobs up: all there is to know of them is in the folder.

    submit(attempt, order)       job.sbatch, job_order.json → sbatch → job.json
    submitted(attempt)           what an earlier process submitted
    nodes_of_job(spec)           in the job: the spec with the nodes that Slurm gave to it
    ask_nodes(names, question)   in the job: what each of them answers
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from seatrial.core.errors import LaunchError
from seatrial.core.files import PRIVATE_PROGRAM, read_json, write_json, write_private_json, write_text
from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import AttemptPaths
from seatrial.core.private_files import NotPrivateError, is_world_writable, read_private_json, world_writable_text
from seatrial.launch.agents import answers_argv, module_argv
from seatrial.launch.host_questions import HostSessions
from seatrial.launch.transports.srun import srun_argv
from seatrial.machine import slurm
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.job import JobOrder, StartedJob, SubmittedJob
from seatrial.records.launch import Reply
from seatrial.records.plan import RunSpec

JOB_MODULE = "seatrial.campaign.job"
JOB_NAME_LENGTH = 60
# 60 ranges of as many ports as are tried, all below those that the kernel gives to clients.
FIRST_PORT, PORTS_OF_JOB, PORT_RANGES = 20_000, 200, 60
NOT_SHARED = 66
"""Exit code of a job whose node does not see the attempt's folder."""
_JOB_ID = re.compile(r"[0-9]+(?:[_+][0-9]+)?")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+&|()\[\]*-]*")


def submit(attempt: AttemptPaths, order: JobOrder, call: Callable[[Sequence[str]], slurm.Answer] | None = None) -> SubmittedJob | None:
    """Submit the attempt; None where the controller does not answer, and nobody knows yet whether it took the job. LaunchError where it
    refused it."""
    if is_world_writable(campaign := attempt.folder.parent.parent):
        raise LaunchError(world_writable_text(campaign))
    write_private_json(attempt.job_order, to_json(order))
    # The site's lines may export secrets.
    write_text(attempt.job_script, script(order.spec, attempt), PRIVATE_PROGRAM)
    answer = (call or slurm.call)(["sbatch", "--parsable", str(attempt.job_script)])
    if answer.unreachable:
        return None
    if not answer.ok:
        raise LaunchError(f"sbatch refused the job of {attempt.run}: {answer.problem}")
    job, _, cluster = answer.stdout.strip().splitlines()[-1].partition(";")
    return record(attempt, SubmittedJob(job=job, submitted_t=time.time(), cluster=cluster))


def read_order(attempt: AttemptPaths) -> JobOrder | None:
    """What the job runs; None where there is none. LaunchError unless this user wrote it, and nobody else can have changed it."""
    try:
        return from_json_or_none(JobOrder, read_private_json(attempt.job_order))
    except NotPrivateError as error:
        raise LaunchError(str(error)) from error


def record(attempt: AttemptPaths, job: SubmittedJob) -> SubmittedJob:
    write_json(attempt.job, to_json(job))
    return job


def submitted(attempt: AttemptPaths) -> SubmittedJob | None:
    """The job of this attempt, as far as the folder tells: a harness that was killed just after sbatch has not written it down, but the job
    itself has when it started."""
    found = from_json_or_none(SubmittedJob, read_json(attempt.job))
    # It becomes an argument of scancel, which takes options too.
    if found is not None and not _JOB_ID.fullmatch(found.job):
        return None
    if found is None and (begun := started(attempt)) and _JOB_ID.fullmatch(begun.job):
        return SubmittedJob(job=begun.job, submitted_t=begun.started_t)
    return found


def started(attempt: AttemptPaths) -> StartedJob | None:
    return from_json_or_none(StartedJob, read_json(attempt.job_start))


def script(spec: RunSpec, attempt: AttemptPaths) -> str:
    """job.sbatch, which a person can submit too."""
    assert spec.place.slurm is not None
    folder = str(attempt.folder.absolute())
    program = module_argv(JOB_MODULE, spec.place.python)
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={_quoted(value)}" for name, value in _options(spec, attempt)),
        *(f"#SBATCH {argument}" for argument in spec.place.slurm.sbatch_args),
        f"# {spec.run}, attempt {attempt.number}. By hand: sbatch {shlex.quote(str(attempt.job_script.absolute()))}",
        "set -euo pipefail",
        f"if ! test -e {shlex.quote(folder + '/' + attempt.job_order.name)}; then",
        f'  echo "$(hostname) does not see {_in_double_quotes(folder)}: it must be on a file system that all nodes share" >&2',
        f"  exit {NOT_SHARED}",
        "fi",
        *_activation(spec),
        # In place of the shell: a shell would pass no signal on before its child has ended.
        f"exec {shlex.join([*program, folder])}",
    ]
    return "\n".join(lines) + "\n"


def _activation(spec: RunSpec) -> Iterator[str]:
    """The site's own lines. What they export reaches the other nodes too: srun passes the environment on."""
    if spec.site is None or not spec.site.activate:
        return
    yield f"# From {spec.site.source}. Scripts that activate an environment often use variables that are not set."
    yield "set +u"
    for line in spec.site.activate:
        yield "# shellcheck disable=SC1090,SC1091"
        yield line
    yield "set -u"


def _options(spec: RunSpec, attempt: AttemptPaths) -> Iterator[tuple[str, str | None]]:
    wanted = spec.place.slurm
    assert wanted is not None
    yield "job-name", f"seatrial-{spec.run}"[:JOB_NAME_LENGTH]
    yield "nodes", str(spec.place.nodes)
    yield "ntasks-per-node", "1"
    yield from slurm.resource_options(wanted)
    yield "chdir", spec.cwd
    # sbatch fills in what follows a percent sign.
    yield "output", str(attempt.job_log.absolute()).replace("%", "%%")
    # A requeued job would otherwise begin the file anew.
    yield "open-mode", "append"
    yield "requeue", None
    yield "signal", f"B:USR1@{wanted.warn_s}"
    # By this a job is recognised whose number was never written down.
    yield "comment", str(attempt.folder.absolute())


def _quoted(value: str) -> str:
    """As sbatch reads it."""
    if "\n" in value or '"' in value:
        raise LaunchError(f"{value!r} cannot stand in the script of a Slurm job: use a path without quotes and line breaks")
    return value if _PLAIN.fullmatch(value) else f'"{value}"'


def _in_double_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def nodes_of_job(spec: RunSpec, environ: Mapping[str, str] = os.environ, names: Sequence[str] | None = None) -> RunSpec:
    """In the job: `spec` with its nodes, the one that this program runs on first."""
    found = slurm.host_names(environ.get("SLURM_JOB_NODELIST", "")) if names is None else tuple(names)
    if len(found) != spec.place.nodes:
        raise LaunchError(f"the job has {len(found)} nodes ({', '.join(found) or 'unknown'}) and the plan {spec.place.nodes}: see job.log")
    share = spec.place.ranks // len(found)
    hosts = tuple(HostSpec(name=name, ranks=share) for name in found)
    job = environ.get("SLURM_JOB_ID", "")
    port_base = spec.place.port_base
    if spec.place.port is None and port_base is None and job.isdecimal():
        # Jobs that share a node look for a free port in different ranges.
        port_base = FIRST_PORT + PORTS_OF_JOB * (int(job) % PORT_RANGES)
    return replace(spec, place=replace(spec.place, hosts=hosts, port_base=port_base))


def ask_nodes(names: Sequence[str], question: Mapping[str, object], timeout_s: float, python: str = "") -> dict[str, Reply]:
    """In the job: every node's answer; the first of `names` is this node."""
    answering = answers_argv(python)
    commands = {name: answering if name == names[0] else tuple(srun_argv(name, answering)) for name in names}
    with HostSessions(commands) as sessions:
        return sessions.ask(dict.fromkeys(names, question), timeout_s)
