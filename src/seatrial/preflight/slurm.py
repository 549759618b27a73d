"""What jobs of place `slurm` need before the first is submitted: Slurm's programs, the partition and its nodes, a folder that nodes see.

In: a `Need` with its `jobs`. Out: checks, each made from the login node; nothing is submitted. What only Slurm itself can judge (account,
QOS, constraint, time limit) is asked by `sbatch --test-only`. Where a new campaign's folder, or what its plan names, is on a file system
that may not be shared, `check_paths_on_nodes` starts a task of a second on as many free nodes as a job has, or on one.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.core.errors import did_you_mean
from seatrial.core.paths import TRIAL_PREFIX, CampaignPaths
from seatrial.core.shell import find_on_path
from seatrial.core.text import count, format_duration, join_names
from seatrial.machine import host, slurm
from seatrial.preflight.check_definition import Need, refusal, script_of, warning
from seatrial.preflight.storage import DATA_SETTING, named_paths
from seatrial.records.caution import Check
from seatrial.records.plan import CURRENT, PlaceSpec, SlurmSpec

PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
MAX_FILES = 100
# A free node takes the task at once; no waiting in a queue.
LOOK_S = 5
LOOK_TIMEOUT_S = 15.0
# Kept in the memory of one host; others cannot have it.
OF_ONE_HOST = frozenset({"tmpfs", "ramfs", "devtmpfs"})

FOUND = refusal(
    name="Slurm's programs",
    what="whether sbatch, srun, squeue, scancel, scontrol and sinfo are in PATH here",
    prevents="sbatch: command not found",
    fix="start it on a login node of the cluster, or load its module (`module load slurm`)",
)
CONFIGURED = refusal(
    name="Slurm's configuration",
    what="whether Slurm's programs find their cluster's configuration here",
    prevents="sbatch: fatal: Could not establish a configuration source",
    fix="start it on a login node of the cluster, or set SLURM_CONF to its slurm.conf",
)
ANSWERS = warning(
    name="Slurm's controller",
    what="whether the controller answers",
    prevents="jobs that cannot be submitted: the campaign would wait until it answers",
    fix="try `sinfo`, and ask the cluster's administrators",
)
PARTITION = refusal(
    name="partition",
    what="whether the partition exists and is up; without one, whether the cluster has a default",
    prevents="sbatch: error: invalid partition specified",
    fix="set place.partition to one of `sinfo -s`",
)
NODES = refusal(
    name="nodes of a job",
    what="whether the partition has as many nodes, CPUs and GPUs as a job requests",
    prevents="a job that never leaves the queue, or: Requested node configuration is not available",
    fix="lower place.nodes, place.cpus_per_task or place.gpus_per_node, or choose another partition",
)
TIME = refusal(
    name="time limit of a job",
    what="whether the partition allows it, and whether it leaves time before the warning (warn_s)",
    prevents="a job that never leaves the queue (PartitionTimeLimit), or one that is halted before its first step",
    fix="set place.time to less than the partition's MaxTime (`scontrol show partition`) and more than warn_s, or choose another partition",
)
ACCEPTED = refusal(
    name="sbatch's own check",
    what="what `sbatch --test-only` says to such a job: account, QOS, constraint, time limit",
    prevents="sbatch: error: Batch job submission failed",
    fix="correct the key of place that it names",
)
VISIBLE = refusal(
    name="folder on all nodes",
    what="whether the output folder's file system can be seen by the nodes; tmpfs is refused, a local disk gives a warning",
    prevents="jobs that end at once, since their node has no such folder",
    fix="choose a folder on the cluster's shared file system with --out",
)
NEEDED = refusal(
    name="files on free nodes",
    what="whether the nodes that are free, as many as a job has, have the plan's folder, its script, the interpreter, and data that its "
    "settings name; with too few free it is one node",
    prevents="jobs that wait in the queue and then fail: No such file or directory",
    fix="put them on the cluster's shared file system, or name them as the nodes see them (place.python for the interpreter)",
)
WITHIN = refusal(
    name="current Slurm job",
    what="with `allocation: current`, whether seatrial was started in a Slurm job with as many nodes as the plan has",
    prevents="runs without nodes",
    fix="start it with `salloc --nodes=N seatrial run PLAN`, or use allocation: campaign",
)
CONTAINERS = refusal(
    name="containers in jobs",
    what="with a container in site.yaml, whether srun has the plugin pyxis (`srun --help` lists --container-image)",
    prevents="srun: unrecognized option '--container-image'",
    fix="ask the administrators for pyxis and enroot, or leave the container out of site.yaml",
)
SLURM_CHECKS = (FOUND, CONFIGURED, ANSWERS, CONTAINERS, WITHIN, PARTITION, NODES, TIME, ACCEPTED, VISIBLE, NEEDED)


def check_slurm(need: Need) -> Iterator[Check]:
    """No checks for a plan without jobs."""
    if not need.jobs:
        return
    yield _visible(need.output, need.shared)
    missing = [program for program in PROGRAMS if find_on_path(program, need.base_env.get("PATH")) is None]
    yield FOUND.result(not missing, f"{', '.join(missing)} not in PATH" if missing else "in PATH")
    if missing:
        return
    known = slurm.partitions()
    problem = slurm.configuration_problem() if known is None else ""
    yield CONFIGURED.result(not problem, problem or "found")
    if problem:
        return
    yield ANSWERS.result(known is not None, "no answer from sinfo" if known is None else count(len(known), "partition"))
    if known is None:
        return
    if image := next((place.slurm.container.image for place in need.jobs if place.slurm and place.slurm.container), ""):
        found = "--container-image" in slurm.call(["srun", "--help"]).stdout
        yield CONTAINERS.result(
            found, f"pyxis is there, for {image}" if found else f"srun has no --container-image, and the site names {image}"
        )
    for place in dict.fromkeys(need.jobs):
        if place.slurm is not None and place.slurm.allocation == CURRENT:
            yield _within(place, need.base_env)
            continue
        checks = list(_check_job(place, known))
        yield from checks
        if all(check.ok for check in checks):
            yield _accepted(place)


def _check_job(place: PlaceSpec, known: Sequence[slurm.Partition]) -> Iterator[Check]:
    wanted = place.slurm or SlurmSpec()
    names = wanted.partition.split(",") if wanted.partition else [one.name for one in known if one.default]
    found = [one for one in known if one.name in names]
    if not names:
        yield PARTITION.result(False, f"the cluster has no default one; it has {', '.join(one.name for one in known)}")
        return
    unknown = next((name for name in names if name not in {one.name for one in known}), None)
    if unknown is not None:
        yield PARTITION.result(False, f"'{unknown}' is unknown; {did_you_mean(unknown, [one.name for one in known])}")
        return
    yield PARTITION.result(any(one.up for one in found), ", ".join(f"{one.name} is {one.state}" for one in found))
    problem = _too_much(place, wanted, found)
    yield NODES.result(not problem, problem or f"{count(place.nodes, 'node')} of {', '.join(one.name for one in found)}")
    problem = _wrong_time(wanted, [one for one in found if one.up])
    yield TIME.result(not problem, problem or wanted.time or "the partition's own")


def _wrong_time(wanted: SlurmSpec, found: Sequence[slurm.Partition]) -> str:
    """Why the time limit is wrong; one of several partitions that allows it is enough."""
    limit_s, problems = slurm.time_limit_s(wanted.time), []
    for one in found:
        default_s = one.default_time_s or one.max_time_s
        own_s = limit_s if wanted.time else default_s
        if one.max_time_s is not None and (own_s is None or own_s > one.max_time_s):
            longest = format_duration(one.max_time_s)
            problems.append(f"a job requests {format_duration(own_s) if own_s else 'no limit'}, and {one.name} allows {longest}")
        elif not wanted.time and default_s and (problem := slurm.short_time_problem(f"0:{default_s:.0f}", wanted.warn_s)):
            problems.append(f"the default of {one.name}, {format_duration(default_s)}: {problem}")
        elif wanted.time and (problem := slurm.short_time_problem(wanted.time, wanted.warn_s)):
            problems.append(problem)
        else:
            return ""
    return problems[0] if problems else ""


def _too_much(place: PlaceSpec, wanted: SlurmSpec, found: Sequence[slurm.Partition]) -> str:
    names, most = ", ".join(one.name for one in found), max(one.nodes for one in found)
    if place.nodes > most:
        return f"a job requests {count(place.nodes, 'node')}, and {names} has {most}"
    allowed = [one.max_nodes for one in found]
    if all(one is not None and place.nodes > one for one in allowed):
        return f"a job requests {count(place.nodes, 'node')}, and {names} allows {max(filter(None, allowed))} a job"
    cpus = max(one.cpus for one in found)
    if wanted.cpus_per_task and wanted.cpus_per_task > cpus:
        return f"a job requests {wanted.cpus_per_task} CPUs a node, and the largest of {names} has {cpus}"
    gpus = max((_gpus(gres) for one in found for gres in one.gres), default=0)
    asked = _gpus(wanted.gres) or wanted.gpus_per_node or 0
    return f"a job requests {count(asked, 'GPU')} a node, and {names} has {gpus}" if asked > gpus else ""


def _gpus(gres: str) -> int:
    """GPUs in `gpu:h100:8(S:0-1),shard:4`."""
    return sum(int(number) for number in re.findall(r"(?:^|,)gpu(?::[A-Za-z][\w.-]*)?:(\d+)", gres))


def _within(place: PlaceSpec, environ: Mapping[str, str]) -> Check:
    if not environ.get("SLURM_JOB_ID"):
        return WITHIN.result(False, "SLURM_JOB_ID is not set: not inside a Slurm job")
    names = slurm.host_names(environ.get("SLURM_JOB_NODELIST", ""))
    shown = f"job {environ['SLURM_JOB_ID']} has {count(len(names), 'node')}"
    return WITHIN.result(len(names) == place.nodes, shown if len(names) == place.nodes else f"{shown}, and the plan {place.nodes}")


def _accepted(place: PlaceSpec) -> Check:
    answer = slurm.try_submission(place)
    return ACCEPTED.result(answer.ok or answer.unreachable, "accepted" if answer.ok else answer.problem)


def _visible(folder: Path, shared: str) -> Check:
    if shared:
        below = folder.resolve().is_relative_to(Path(shared).resolve())
        return VISIBLE.result(below, f"{folder} is {'' if below else 'not '}below {shared}, the site's shared root")
    kind, mount = host.file_system_and_mount(folder.absolute())
    if kind in OF_ONE_HOST:
        return VISIBLE.result(False, f"{folder} is on {mount}, in this host's memory ({kind})")
    if kind in host.SHARED_FILE_SYSTEMS:
        return VISIBLE.result(True, f"{mount} ({kind})")
    if job_wrote := _started_by_a_node(CampaignPaths(folder.absolute())):
        return VISIBLE.result(True, f"{folder} is on {mount} ({kind or 'unknown'}), and jobs have written to it ({job_wrote})")
    return VISIBLE.result(False, f"{folder} is on {mount} ({kind or 'unknown'}): unknown whether the nodes have it too", refuses=False)


def _started_by_a_node(paths: CampaignPaths) -> str:
    """A file in this folder that the node of an earlier job wrote, relative to it; empty without one."""
    # Without a script the job is of `allocation: current`, whose program may run on the login node (salloc).
    jobs = itertools.chain((attempt for run in paths.runs() for attempt in run.attempts()), paths.allocation_jobs())
    return next((str(job.job_start.relative_to(paths.folder)) for job in jobs if job.job_script.exists() and job.job_start.exists()), "")


def check_paths_on_nodes(need: Need, checks: Sequence[Check], call: Callable[..., slurm.Answer] = slurm.call) -> list[Check]:
    """`checks`, completed by free nodes: whether nodes see the output folder and what the plan names. Without a free node that stays
    unknown; a job may get other nodes."""
    if not need.jobs or any(check.refuses and not check.ok for check in checks):
        return list(checks)
    folder_unknown = next((check for check in checks if check.name == VISIBLE.name and not check.ok), None)
    needed = {path: name for path, name in _needed_files(need).items() if not (path.exists() and host.is_on_all_nodes(path, need.shared))}
    if folder_unknown is None and not needed:
        return list(checks)
    output = need.output.absolute()
    folder = next(path for path in (output, *output.parents) if path.is_dir())
    trial = folder / f"{TRIAL_PREFIX}{secrets.token_hex(4)}"
    largest = max(need.jobs, key=lambda place: place.nodes)
    seen = missing_on_nodes(largest, trial, list(needed), call)
    if not seen:
        names = ", ".join(dict.fromkeys(needed.values()))
        return [
            *checks,
            *([NEEDED.result(False, f"unknown whether the nodes have {names}: none was free", refuses=False)] if needed else []),
        ]
    looked = join_names(list(seen)) + (f" (no more of {largest.nodes} nodes were free)" if len(seen) < largest.nodes else "")
    shown = f"{folder} ({host.file_system_and_mount(folder)[0] or 'unknown'})"
    blind = [node for node, missing in seen.items() if trial in missing]
    others = join_names([node for node in seen if node not in blind])
    whose = f"only {others} has it" if others else "it is this host's own"
    text = f"{join_names(blind)} does not see {shown}: {whose}" if blind else f"{shown} is seen by {looked}"
    found = [VISIBLE.result(not blind, text) if check is folder_unknown else check for check in checks]
    lacking = {node: [f"{needed[path]} {path}" for path in needed if path in missing] for node, missing in seen.items()}
    if needed:
        texts = [f"{node} does not have {', '.join(lacks)}" for node, lacks in lacking.items() if lacks]
        found.append(NEEDED.result(not texts, join_names(texts, separator="; ") or f"found on {looked}"))
    return found


def _needed_files(need: Need) -> dict[Path, str]:
    """Existing paths that every node must have: path → what it is; none within an image, where paths differ."""
    found: dict[Path, str] = {}
    for spec in need.whole_runs:
        if spec.place.slurm is None or spec.place.slurm.container is not None:
            continue
        cwd, python = Path(spec.cwd).absolute(), Path(spec.place.python or sys.executable)
        found[cwd] = "the folder"
        if script := script_of(spec):
            found[cwd / script] = "the script"
        if python.is_absolute():
            found[python] = "the interpreter"
    for definition, key, value, cwd_of in named_paths(replace(need, runs=need.whole_runs)):
        path = (Path(cwd_of) / Path(value).expanduser()).absolute()
        # What a script's argument names may be created by it.
        if need.jobs[0].slurm and need.jobs[0].slurm.container is None and definition is DATA_SETTING and path.exists():
            found[path] = f"settings.{key},"
    return dict(itertools.islice(found.items(), MAX_FILES))


def missing_on_nodes(place: PlaceSpec, trial: Path, others: Sequence[Path], call: Callable[..., slurm.Answer]) -> dict[str, set[Path]]:
    """Node → paths it does not see, of a file just written and the `others`; on as many nodes as the job has, else on a free one. Empty
    if none is free or srun cannot be used here."""
    paths = [trial, *others]
    try:
        trial.write_text("")
        answers = (_ask_nodes(place.slurm or SlurmSpec(), nodes, paths, call) for nodes in dict.fromkeys((place.nodes, 1)))
        lines = next((answer.stdout.splitlines() for answer in answers if answer.ok and answer.stdout.split()), [])
    except OSError:
        return {}
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)
    return {node: {paths[int(number)] for number in numbers} for node, *numbers in sorted(line.split() for line in lines if line.strip())}


def _ask_nodes(wanted: SlurmSpec, nodes: int, paths: Sequence[Path], call: Callable[..., slurm.Answer]) -> slurm.Answer:
    """`node1 0 2` per node: numbers of the paths it does not see, in one line, since lines of several nodes come in any order."""
    kept = ("partition", "account", "qos", "constraint", "nodelist")
    options = [f"--{name}={value}" for name, value in slurm.resource_options(wanted) if name in kept]
    look = 'found=$(hostname); n=0; for path; do test -e "$path" || found="$found $n"; n=$((n + 1)); done; echo "$found"'
    layout = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--time=1", "--mpi=none", "--chdir=/"]
    within = {"within_job": True} if wanted.allocation == CURRENT else {}
    task = ["--job-name=seatrial-folder", *options, "sh", "-c", look, "sh", *map(str, paths)]
    return call(["srun", f"--immediate={LOOK_S}", *layout, *task], timeout_s=LOOK_S + LOOK_TIMEOUT_S, **within)
