"""Slurm's own programs, each call bounded by a timeout: what it knows of its jobs and partitions.

In: program and arguments. Out: an `Answer`, or None from the functions that read one, where the controller did not answer: it is asked
again later. `sacct` is used last, since the accounting database may be switched off.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from seatrial.records.job import FORGOTTEN, JobStatus
from seatrial.records.plan import PlaceSpec, SlurmSpec

# Clients of an unreachable controller wait for a multiple of MessageTimeout, by default 10 s.
TIMEOUT_S = 30.0
POLL_S = 0.1
START_S = 30.0
"""From a job's start to its first step, agents on all nodes included; also how often Slurm checks time limits."""
OPTION_PREFIXES = ("SBATCH_", "SLURM_", "SLURMD_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_")
# The cluster, and the user's identity there.
KEPT = frozenset({"SLURM_CONF", "SLURM_JWT"})
# Set by Slurm for the tasks of a job.
GPUS_OF_JOB = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_UNREACHABLE = re.compile(
    r"Unable to contact|Connection (?:refused|timed out)|Socket timed out|Zero Bytes|controller not responding|backup controller"
    r"|Communication connection failure|Resource temporarily unavailable|Message connection",
    re.IGNORECASE,
)
_INVALID_JOB = re.compile(r"Invalid job id", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How one call ended."""

    returncode: int | None
    """None where it could not be started or did not end in time."""
    stdout: str = ""
    stderr: str = ""

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    @property
    def unreachable(self) -> bool:
        """Slurm itself did not answer; asking later may help."""
        return self.returncode is None or (not self.ok and bool(_UNREACHABLE.search(self.stderr)))

    @property
    def problem(self) -> str:
        """Its last error line, without the program's name."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return re.sub(r"^\w+: (?:error: )?", "", lines[-1]) if lines else f"exit code {self.returncode}"


def environment(environ: Mapping[str, str], *, within_job: bool = False) -> dict[str, str]:
    """The environment of Slurm's programs: without variables that act as options (`SBATCH_PARTITION` overrides the script,
    `SQUEUE_FORMAT` changes the output), and, unless they act `within_job`, without those of a job around this process, which a submitted
    job would inherit."""
    kept = KEPT if not within_job else {*KEPT, *(name for name in environ if name.startswith("SLURM_"))}
    of_job = GPUS_OF_JOB if "SLURM_JOB_ID" in environ and not within_job else ()
    return {name: value for name, value in environ.items() if name in kept or not (name.startswith(OPTION_PREFIXES) or name in of_job)}


def call(
    argv: Sequence[str],
    text: str = "",
    timeout_s: float = TIMEOUT_S,
    *,
    within_job: bool = False,
    variables: Mapping[str, str] | None = None,
    give_up: Callable[[], bool] = lambda: False,
) -> Answer:
    """Run one of Slurm's programs to its end, with `text` as its input and `variables` on top of the environment; until the timeout or
    `give_up`."""
    try:
        # In a session of its own: Ctrl-C in the terminal is for the harness alone.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**environment(os.environ, within_job=within_job), **(variables or {})},
            start_new_session=True,
        )
    except OSError as error:
        return Answer(returncode=None, stderr=f"{argv[0]} could not be started: {error.strerror}")
    until_m, unsent = time.monotonic() + timeout_s, text or None
    with process:
        while True:
            try:
                stdout, stderr = process.communicate(unsent, timeout=POLL_S)
                return Answer(returncode=process.returncode, stdout=stdout, stderr=stderr)
            except subprocess.TimeoutExpired:
                unsent = None
                if time.monotonic() > until_m or give_up():
                    process.kill()
                    return Answer(returncode=None, stderr=f"{argv[0]} did not answer within {timeout_s:.0f} s")


Call = Callable[[Sequence[str]], Answer]
ScriptCall = Callable[[Sequence[str], str], Answer]
"""The same with a text on standard input."""


def own_jobs(ask: Call | None = None) -> dict[str, JobStatus] | None:
    """Every job of this user that Slurm lists, by id; None where it does not answer."""
    answer = (ask or call)(["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%N|%V|%k"])
    if not answer.ok:
        return None
    rows = [line.strip().split("|", 5) for line in answer.stdout.splitlines() if line.count("|") >= 5]
    return {row[0]: JobStatus(state=row[1], reason=row[2], nodes=row[3], queued_t=_wall_clock(row[4]), comment=row[5]) for row in rows}


def _wall_clock(text: str) -> float:
    """`2026-11-18T09:47:13` in this host's time zone; 0 for `Unknown`."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def final_state(job: str) -> JobStatus:
    """The state of a job that squeue no longer lists, from the accounting; FORGOTTEN without one."""
    answer = call(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=State,Reason,NodeList"])
    rows = [line.split("|") for line in answer.stdout.splitlines() if line.count("|") >= 2] if answer.ok else []
    if not rows:
        return JobStatus(state=FORGOTTEN)
    # `CANCELLED by 1000`.
    return JobStatus(state=rows[-1][0].split(" ")[0], reason=rows[-1][1], nodes=rows[-1][2])


def earlier_states(job: str) -> tuple[str, ...]:
    """How the starts of a requeued job ended, oldest first, by the accounting: `NODE_FAIL`, `PREEMPTED`, `REQUEUED`."""
    answer = call(
        ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={job}", "--format=State"], timeout_s=10.0
    )
    return tuple(line.split(" ")[0] for line in answer.stdout.splitlines() if line) if answer.ok else ()


def cancel(job: str, ask: Call | None = None) -> Answer:
    """Cancel a job; also ok where it is over or unknown."""
    answer = (ask or call)(["scancel", job])
    return Answer(returncode=0) if _INVALID_JOB.search(answer.stderr) else answer


def time_left_s(job: str) -> float | None:
    """Time until the job's time limit; None where there is none, or it is unknown."""
    answer = call(["squeue", "--noheader", f"--jobs={job}", "--format=%L"])
    return duration_s(answer.stdout.strip()) if answer.ok else None


def duration_s(text: str) -> float | None:
    """`90` (minutes), `30:00`, `2:00:00`, `1-12` (days and hours) or `1-12:30:00` in seconds; None for `UNLIMITED` and invalid text."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return None
    days, *parts = (int(part) if part else None for part in found.groups())
    given = [part for part in parts if part is not None]
    # Without days the first of one or two is minutes, otherwise hours.
    hours, minutes, seconds = [0, *given, 0][:3] if days is None and len(given) < 3 else [*given, 0, 0][:3]
    return float((((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def time_limit_s(text: str) -> float | None:
    """The limit in seconds: Slurm rounds it up to minutes, and 0 means none."""
    limit_s = duration_s(text)
    return math.ceil(limit_s / 60) * 60.0 if limit_s else None


def short_time_problem(time_limit: str, warn_s: int) -> str:
    """Why a job with this limit would be warned of its end before its first step; empty where there is time."""
    limit_s = time_limit_s(time_limit)
    if limit_s is None or limit_s - warn_s > START_S:
        return ""
    before_s = max(0.0, limit_s - warn_s)
    return (
        f"'{time_limit}' leaves {before_s:.0f} s before the warning (warn_s: {warn_s}), and a job needs {START_S:.0f} s to start; "
        "raise it, or lower warn_s"
    )


def host_names(nodelist: str) -> tuple[str, ...]:
    """`node[1-2]` → its names, in order; () where scontrol does not answer."""
    answer = call(["scontrol", "show", "hostnames", nodelist])
    return tuple(answer.stdout.split()) if answer.ok else ()


def resource_options(wanted: SlurmSpec) -> Iterator[tuple[str, str | None]]:
    """Options of sbatch and their values, None for those without one."""
    given = {
        "partition": wanted.partition,
        "gres": wanted.gres or (f"gpu:{wanted.gpus_per_node}" if wanted.gpus_per_node else ""),
        "cpus-per-task": str(wanted.cpus_per_task or ""),
        "mem": wanted.mem,
        "time": wanted.time,
        "account": wanted.account,
        "qos": wanted.qos,
        "constraint": wanted.constraint,
        "nodelist": wanted.nodelist,
    }
    yield from ((name, value) for name, value in given.items() if value)
    if wanted.exclusive:
        yield "exclusive", None


def try_submission(place: PlaceSpec) -> Answer:
    """sbatch's answer to such a job, without submitting it."""
    wanted = place.slurm or SlurmSpec()
    options = [f"--{name}" if value is None else f"--{name}={value}" for name, value in resource_options(wanted)]
    layout = [f"--nodes={place.nodes}", "--ntasks-per-node=1"]
    return call(["sbatch", "--test-only", *layout, *options, *wanted.sbatch_args, "--wrap=true"])


_AWAY = re.compile(r"down|drain|fail|maint|unknown|reserved|\*$", re.IGNORECASE)


def partition_nodes(partition: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Names of the nodes that jobs can run on, and of those that are down or drained; None where Slurm does not answer."""
    answer = call(["sinfo", "--noheader", "--Node", *([f"--partition={partition}"] if partition else []), "--format=%N|%T"])
    if not answer.ok:
        return None
    states = dict(line.strip().split("|", 1) for line in answer.stdout.splitlines() if "|" in line)
    usable = tuple(name for name, state in states.items() if not _AWAY.search(state))
    return usable, tuple(name for name in states if name not in usable)


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition as sinfo shows it."""

    name: str
    nodes: int
    """Drained or down nodes included: they may come back while the job waits."""
    default: bool = False
    gres: tuple[str, ...] = ()
    cpus: int = 0
    """CPUs of its largest node."""
    state: str = "up"
    """Or `down`, `drain`, `inactive`."""
    max_time_s: float | None = None
    """The longest job; None for no limit."""
    default_time_s: float | None = None
    """The limit of a job that names none; None for the longest."""
    max_nodes: int | None = None
    """Nodes of a single job; None for no limit."""

    @property
    def up(self) -> bool:
        return self.state == "up"


def configuration_problem() -> str:
    """Why Slurm's programs find no cluster: no slurm.conf here, and none can be fetched. Empty where they do."""
    answer = call(["sinfo", "--noheader"])
    return answer.problem if not answer.ok and "configuration source" in answer.stderr else ""


def partitions() -> tuple[Partition, ...] | None:
    """None where Slurm does not answer."""
    answer = call(["sinfo", "--noheader", "--format=%P|%D|%G|%c|%a|%l|%L|%s"])
    if not answer.ok:
        return None
    found: dict[str, Partition] = {}
    for line in answer.stdout.splitlines():
        name, nodes, gres, cpus, available, longest, default, sizes = [*line.strip().split("|"), *[""] * 7][:8]
        # `1-infinite`, or one number.
        most = sizes.rpartition("-")[2]
        key = name.rstrip("*")
        known = found.get(key, Partition(name=key, nodes=0))
        found[key] = Partition(
            name=key,
            nodes=known.nodes + int(nodes or 0),
            default=name.endswith("*") or known.default,
            gres=tuple(dict.fromkeys([*known.gres, gres])),
            cpus=max(known.cpus, int(re.sub(r"\D.*", "", cpus) or 0)),
            state=available,
            max_time_s=duration_s(longest),
            default_time_s=duration_s(default),
            max_nodes=int(most) if most.isdecimal() else None,
        )
    return tuple(found.values())
