"""Slurm: a run, or all runs of a campaign, as a job. The script of the job, its submission, and which nodes it got.

The job is autonomous: `job.sbatch` starts one program on the first of its nodes, which is the harness there and writes outcome.json. The
harness outside only submits, polls and cancels. If it is killed, or its login node goes away, another one picks the jobs up: all state is
in the folder.

    submit(paths, order, …)      job.sbatch, job_order.json → sbatch → job.json
    nodes_of_job(spec)           in the job: the spec with its nodes
    ask_nodes(names, question)   in the job: the answer of each node
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from seatrial.core.errors import LaunchError
from seatrial.core.files import PRIVATE_PROGRAM, write_private_json, write_text
from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import JobPaths
from seatrial.core.private_files import is_world_writable, world_writable_text
from seatrial.core.shell import module_argv
from seatrial.core.text import count
from seatrial.launch.agents import query_handler_argv
from seatrial.launch.host_queries import HostSessions
from seatrial.launch.launchers.commands import SOURCES_UNKNOWN, activation_lines
from seatrial.launch.places import job_files
from seatrial.launch.places.job_files import record
from seatrial.launch.transports.srun import srun_argv
from seatrial.machine import slurm
from seatrial.machine.network import is_this_host, local_addresses
from seatrial.records.codec import to_json
from seatrial.records.job import AllocationOrder, Order, SubmittedJob
from seatrial.records.launch import Reply
from seatrial.records.plan import RunSpec

JOB_NAME_LENGTH = 60
# 60 ranges of as many ports as are tried, all below the kernel's client ports.
FIRST_PORT, PORTS_OF_JOB, PORT_RANGES = 20_000, 200, 60
NOT_SHARED = 66
"""Exit code of a job whose node does not see the attempt's folder."""
poll, cancel, final_state, pick_up = slurm.own_jobs, slurm.cancel, slurm.final_state, job_files.pick_up
"""With `submit` they make this module a `JobPlace`."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+&|()\[\]*-]*")


def submit(paths: JobPaths, order: Order, program: str, call: slurm.ScriptCall | None = None) -> SubmittedJob | None:
    """Submit an attempt or an allocation; None where the controller does not answer, so that it may have accepted the job. LaunchError
    where it refused the job."""
    if is_world_writable(paths.campaign):
        raise LaunchError(world_writable_text(paths.campaign))
    write_private_json(paths.job_order, to_json(order))
    text = script(order, paths, program)
    # The site's lines may export secrets.
    write_text(paths.job_script, text, PRIVATE_PROGRAM)
    # Not by its name: another user with write access could replace the file before sbatch reads it.
    answer = (call or slurm.call)(["sbatch", "--parsable"], text)
    if answer.unreachable:
        return None
    if not answer.ok:
        raise LaunchError(f"sbatch refused the job of {_title(order, paths)}: {answer.problem}")
    job, _, cluster = answer.stdout.strip().splitlines()[-1].partition(";")
    return record(paths, SubmittedJob(job=job, submitted_t=time.time(), cluster=cluster))


def _title(order: Order, paths: JobPaths) -> str:
    if isinstance(order, AllocationOrder):
        return f"{order.plan.name}: {count(len(order.first_attempts), 'run')} one after another"
    return f"{order.spec.run}, {paths.folder.name.replace('-', ' ')}"


def script(order: Order, paths: JobPaths, program: str) -> str:
    """job.sbatch, which starts the module `program` on the first node; a person can submit it too."""
    spec = order.spec
    assert spec.place.slurm is not None
    folder = str(paths.folder.absolute())
    argv = module_argv(program, spec.place.python)
    name = order.plan.name if isinstance(order, AllocationOrder) else spec.run
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{key}" if value is None else f"#SBATCH --{key}={_quoted(value)}" for key, value in _options(name, spec, paths)),
        *(f"#SBATCH {argument}" for argument in spec.place.slurm.sbatch_args),
        f"# {_title(order, paths)}. By hand: sbatch {shlex.quote(str(paths.job_script.absolute()))}",
        *([SOURCES_UNKNOWN] if spec.site and spec.site.activate else []),
        "set -euo pipefail",
        f"if ! test -e {_shell_word(folder + '/' + paths.job_order.name)}; then",
        f"  printf '%s does not see %s: it must be on a file system that all nodes share\\n' \"$(hostname)\" {_shell_word(folder)} >&2",
        f"  exit {NOT_SHARED}",
        "fi",
        # For the program itself; the ranks of every node are started after the same lines.
        *activation_lines(spec.site),
        # exec: a shell would not pass signals on until its child has ended.
        f"exec {' '.join(_shell_word(argument) for argument in (*argv, folder))}",
    ]
    return "\n".join(lines) + "\n"


def _options(name: str, spec: RunSpec, paths: JobPaths) -> Iterator[tuple[str, str | None]]:
    wanted = spec.place.slurm
    assert wanted is not None
    yield "job-name", f"seatrial-{name}"[:JOB_NAME_LENGTH]
    yield "nodes", str(spec.place.nodes)
    yield "ntasks-per-node", "1"
    yield from slurm.resource_options(wanted)
    yield "chdir", spec.cwd
    yield "output", _file_pattern(str(paths.job_log.absolute()))
    # A requeued job would otherwise truncate the file.
    yield "open-mode", "append"
    yield "requeue", None
    yield "signal", f"B:USR1@{wanted.warn_s}"
    # Identifies a job whose number was not recorded.
    yield "comment", str(paths.folder.absolute())


def _quoted(value: str) -> str:
    """Quote a value as sbatch reads it."""
    if "\n" in value or '"' in value:
        raise LaunchError(f"{value!r} cannot be quoted in a Slurm job script: use a path without quotes and line breaks")
    return value if _PLAIN.fullmatch(value) else '"' + value.replace("\\", "\\\\") + '"'


def _file_pattern(path: str) -> str:
    """Escape a file name for sbatch, which expands `%` patterns unless the name has a backslash."""
    return path.replace("\\", "\\\\") if "\\" in path else path.replace("%", "%%")


def _in_double_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _shell_word(text: str) -> str:
    """Quote for bash, in double quotes where needed: shellcheck warns of a dollar sign in single quotes."""
    return text if shlex.quote(text) == text else f'"{_in_double_quotes(text)}"'


def nodes_of_job(spec: RunSpec, environ: Mapping[str, str] = os.environ, names: Sequence[str] | None = None) -> RunSpec:
    """In the job: `spec` with its nodes; the first is this one."""
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
    container = spec.place.slurm.container if spec.place.slurm else None
    python = container.python if container and container.python else spec.place.python
    return replace(spec, place=replace(spec.place, hosts=hosts, port_base=port_base, python=python))


def ask_nodes(names: Sequence[str], question: Mapping[str, object], timeout_s: float, python: str = "") -> dict[str, Reply]:
    """In the job: the answer of every node."""
    answering, own = query_handler_argv(python), local_addresses()
    commands = {name: answering if is_this_host(name, own_addresses=own) else tuple(srun_argv(name, answering)) for name in names}
    with HostSessions(commands) as sessions:
        return sessions.ask(dict.fromkeys(names, question), timeout_s)
