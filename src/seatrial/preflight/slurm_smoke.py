"""`seatrial doctor --place slurm`: tries with small jobs what a cluster must be able to do, before the first real job.

Five phases: Slurm's basics (`preflight.slurm`, without a job), the shared file system from the nodes, task layouts and cancel, GPUs, and
InfiniBand; then what a re-run needs: the environment on all nodes, the interface and its address, HF_HOME and RUNS_ROOT on a file system
that all share; then the environment of each node, written to a file, and the differences. In: the place. Out: checks. Jobs that do not
start within IMMEDIATE_S are given up.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.core.files import write_json
from seatrial.core.paths import TRIAL_PREFIX, TRIAL_SEEN, CampaignPaths
from seatrial.core.shell import ACTIVATED_LINE
from seatrial.core.text import count
from seatrial.machine import slurm
from seatrial.machine.network import is_reachable_address, match_nccl_interfaces
from seatrial.machine.processes import AGENT_MODULE
from seatrial.preflight.check_definition import information, refusal, warning
from seatrial.records.caution import Check
from seatrial.records.plan import PlaceSpec, SlurmSpec

NODE_MODULE = f"{AGENT_MODULE}.slurm_smoke_node"
IMMEDIATE_S = 60
JOB_TIMEOUT_S = IMMEDIATE_S + 120.0
CANCEL_TIMEOUT_S = 60.0
POLL_S = 1.0
CACHES = ("HF_HOME", "RUNS_ROOT")
_TASK_FAILED = re.compile(r"srun: error: (\S+): tasks? [\d,-]+: ")
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-f:.]*:[0-9a-f:.]*")

ACTIVATED = refusal(
    name="the site's activate",
    what="whether the lines that site.yaml has under `activate` succeed on the nodes",
    prevents="jobs that end before their first step, on one node or on all",
    fix="type the lines in a new bash on that node (`srun --nodelist=NODE --pty bash`), and correct the one that is named",
)
JOB = refusal(
    name="a job on {nodes} nodes",
    what="whether srun starts this interpreter and Seatrial on the nodes, one task on each",
    prevents="jobs that fail before their first step",
    fix="see the message; install the environment at the same path on every node, or name it with place.python",
)
SHARED = refusal(
    name="shared folder",
    what="whether each node sees, in the output folder, what the others wrote a moment before",
    prevents="agents that cannot read their orders: No such file or directory",
    fix="choose a folder on the cluster's shared file system with --out",
)
TASKS = refusal(
    name="two tasks on a node",
    what="whether srun starts two tasks on one node",
    prevents="More processors requested than permitted",
    fix="ask for fewer CPUs or GPUs (`scontrol show partition`)",
)
CANCEL = refusal(
    name="cancelling a job",
    what="whether a job that was submitted can be cancelled, and is gone",
    prevents="jobs that run on after Ctrl-C",
    fix="see `scontrol show job` and the log of slurmctld",
)
GPUS = warning(
    name="GPUs of a job",
    what="whether each node of a job with GPUs shows as many as it requested",
    prevents="torch.cuda.is_available() is False, or ranks that share a GPU",
    fix="set place.gpus_per_node; ask the administrators about GRES (`scontrol show node`)",
)
INFINIBAND = information(
    name="InfiniBand",
    what="the adapters of the nodes",
    prevents="NCCL over TCP where InfiniBand was meant",
    fix="set NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME in site.yaml",
)
PYTHONS = warning(
    name="Python on all nodes",
    what="whether all nodes have the same interpreter, environment and torch",
    prevents="errors on one node only",
    fix="use one environment on the shared file system",
)
ADDRESS = refusal(
    name="interface on all nodes",
    what="whether each node has an address on the named interface, and which",
    prevents="NCCL WARN Bootstrap : no socket interface found",
    fix="correct place.interface or the site's; `ip -4 addr` on a node shows them",
)
FOLDERS = warning(
    name="{variable} on all nodes",
    what="whether HF_HOME and RUNS_ROOT are set, and each node sees there what the others wrote",
    prevents="a model that each node downloads for itself, or results on a node's own disk",
    fix="point {variable} at a folder on the shared file system",
)
NODE_DIFFERENCES = warning(
    name="node differences",
    what="in what the nodes differ: system, processors, memory, GPUs, driver, interfaces, mounts, Slurm, modules, conda, packages",
    prevents="one slow node that holds all ranks up, or an error on one node only",
    fix="compare the nodes in {file}, and leave the odd one out (`--exclude` in place.sbatch_args)",
)
SMOKE_CHECKS = (ACTIVATED, JOB, SHARED, TASKS, CANCEL, GPUS, INFINIBAND, PYTHONS, ADDRESS, FOLDERS, NODE_DIFFERENCES)

Call = Callable[..., slurm.Answer]


@dataclass(frozen=True, kw_only=True)
class NodeTask:
    """How a task is started on a node as the ranks of a job are."""

    argv: Sequence[str]
    """Starts NODE_MODULE, after the site's lines."""
    srun_options: Sequence[str] = ()
    """srun's options for the site's container."""
    activation: Sequence[str] = ()
    """Starts the command behind it after the site's lines, without the container; empty where the site has none."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The site's variables, and what `activation` needs."""


def try_jobs(place: PlaceSpec, folder: Path, task: NodeTask, call: Call = slurm.call) -> Iterator[Check]:
    """The checks, on at least two nodes if possible: a single node does not show what nodes share."""
    wanted = place.slurm or SlurmSpec()
    options = [f"--{name}={value}" for name, value in slurm.resource_options(wanted) if value is not None and name != "time"]
    common = ["srun", "--time=5", f"--immediate={IMMEDIATE_S}", "--mpi=none", "--job-name=seatrial-doctor"]

    def run(nodes: int, *argv: str) -> slurm.Answer:
        layout = [f"--nodes={nodes}", "--ntasks-per-node=1"]
        return call([*common, *options, *layout, *argv], timeout_s=JOB_TIMEOUT_S, variables=task.variables)

    if task.activation:
        activated = run(place.nodes, *task.activation, "true")
        yield ACTIVATED.result(activated.ok, "done" if activated.ok else _problem(activated))
        if not activated.ok:
            return
    for num_nodes in dict.fromkeys((max(place.nodes, nodes_to_try(place)), place.nodes)):
        began_m = time.monotonic()
        answer = run(num_nodes, *task.srun_options, *task.argv, str(folder.absolute()), str(num_nodes))
        nodes = [found for line in answer.stdout.splitlines() if isinstance(found := _json(line), dict)]
        hosts = sorted(str(node["host"]) for node in nodes)
        reached = answer.ok and len(set(hosts)) == num_nodes
        if reached:
            break
    took = f"{', '.join(hosts)} in {time.monotonic() - began_m:.0f} s" if reached else _problem(answer)
    yield JOB.result(reached, took, nodes=num_nodes)
    if reached:
        yield from _check_nodes(place, wanted, nodes, folder)
    # Unlike the tasks of a real run: one CPU each always fits.
    small = [option for option in options if not option.startswith("--cpus-per-task")]
    two = call([*common, *small, "--nodes=1", "--ntasks=2", "--cpus-per-task=1", "hostname"], timeout_s=JOB_TIMEOUT_S)
    yield TASKS.result(two.ok and len(two.stdout.split()) == 2, "both ran" if two.ok else _problem(two))
    yield _cancel(options, call)


def nodes_to_try(place: PlaceSpec) -> int:
    """Two, unless the partition has fewer that are up, or the plan names its nodes."""
    wanted = place.slurm or SlurmSpec()
    found = None if wanted.nodelist else slurm.partition_nodes(wanted.partition)
    return min(2, len(found[0])) if found else 1


def _problem(answer: slurm.Answer) -> str:
    """The task's own message, of a failed line of the site; else srun's."""
    lines = [line.strip() for line in answer.stderr.splitlines()]
    at = next((position for position, line in enumerate(lines) if ACTIVATED_LINE in line), None)
    if at is None:
        return answer.problem
    # `srun: error: node2: task 1: Exited with exit code 1`; the tasks of several nodes print in any order.
    failed = dict.fromkeys(found[1] for line in lines if (found := _TASK_FAILED.match(line)))
    where = f"on {', '.join(failed)}: " if failed else ""
    return where + "; ".join(line for line in lines[max(0, at - 1) : at + 1] if not _TASK_FAILED.match(line))


def _json(line: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(line)
    return None


def _check_nodes(place: PlaceSpec, wanted: SlurmSpec, nodes: Sequence[dict[str, Any]], folder: Path) -> Iterator[Check]:
    hosts = {str(node["host"]) for node in nodes}
    trials = list(folder.glob(f"{TRIAL_PREFIX}{nodes[0]['job']}-*"))
    marks = list(folder.glob(f"{TRIAL_PREFIX}{nodes[0]['job']}{TRIAL_SEEN}-*"))
    blind = [f"{node['host']} ({node['problem'] or 'does not see the others'})" for node in nodes if set(node["sees"]) != hosts]
    here = [] if len(trials) == len(hosts) else ["this host does not see what they wrote"]
    yield SHARED.result(not blind and not here, "; ".join([*blind, *here]) or f"seen by {count(len(hosts), 'node')} and here")
    for trial in (*trials, *marks):
        trial.unlink(missing_ok=True)
    asked = wanted.gpus_per_node
    shown = {str(node["host"]): int(node["gpus"]) for node in sorted(nodes, key=lambda node: str(node["host"]))}
    if asked:
        wrong = [f"{host} shows {gpus}" for host, gpus in shown.items() if gpus != asked]
        yield GPUS.result(not wrong, "; ".join(wrong) or f"{asked} on each node")
    else:
        by_driver = ", ".join(f"{host} {len(driver)}" for host, driver in sorted((n["host"], n["environment"]["gpus"]) for n in nodes))
        yield GPUS.result(True, f"none requested (place.gpus_per_node); by the driver {by_driver}")
    adapters = sorted({f"{name} {text}" for node in nodes for name, text in node["infiniband"].items()})
    yield INFINIBAND.result(True, "; ".join(adapters) or "none")
    yield from _check_checklist(place, nodes)
    yield _discover(nodes, folder)


def _check_checklist(place: PlaceSpec, nodes: Sequence[dict[str, Any]]) -> Iterator[Check]:
    """What a re-run needs on every node: the environment, the interface and its address, the folders of caches and results."""
    pythons = {str(node["host"]): _python(node["environment"]) for node in nodes}
    same = len(set(pythons.values())) == 1
    yield PYTHONS.result(same, "; ".join({*pythons.values()} if same else (f"{host}: {text}" for host, text in sorted(pythons.items()))))
    nics = {str(node["host"]): _nic(place.interface, node["interfaces"]) for node in sorted(nodes, key=lambda node: str(node["host"]))}
    missing = [host for host, nic in nics.items() if not nic]
    on = f"none of {place.interface} on {', '.join(missing)}" if missing else ", ".join(f"{host} {nic}" for host, nic in nics.items())
    yield ADDRESS.result(not (missing and place.interface), on if place.interface else f"none is named; {on}")
    for variable in CACHES:
        yield _check_folder(variable, nodes)


def _python(found: Mapping[str, Any]) -> str:
    torch = found["packages"].get("torch", "")
    return f"{found['python']} in {found['venv'] or found['conda'] or found['executable']}, {f'torch {torch}' if torch else 'no torch'}"


def _nic(pattern: str, interfaces: Mapping[str, Sequence[str]]) -> str:
    """The interface that NCCL would use, with its address."""
    usable = {name: [one for one in addresses if is_reachable_address(one)] for name, addresses in interfaces.items()}
    taken = match_nccl_interfaces(pattern, [name for name, addresses in usable.items() if addresses])
    return f"{taken[0]} {usable[taken[0]][0]}" if taken else ""


def _check_folder(variable: str, nodes: Sequence[dict[str, Any]]) -> Check:
    hosts = {str(node["host"]) for node in nodes}
    found = {str(node["host"]): node["folders"][variable] for node in nodes if variable in node["folders"]}
    if not found:
        return FOLDERS.result(True, "not set on any node", variable=variable)
    shared = {host: set(one["sees"]) == hosts for host, one in found.items()}
    # A read-only one is the same if inode and time are.
    identities = {one["identity"] for one in found.values()}
    read_only = all(one["problem"] and one["identity"] for one in found.values()) and len(identities) == 1
    if len(found) == len(hosts) and (all(shared.values()) or read_only):
        return FOLDERS.result(True, f"{next(iter(found.values()))['path']}, shared by all", variable=variable)
    unset = [f"not set on {host}" for host in sorted(hosts - set(found))]
    odd = [f"{host}: {found[host]['path']} {found[host]['problem'] or 'is its own'}" for host in sorted(found) if not shared[host]]
    return FOLDERS.result(False, "; ".join([*unset, *odd]), variable=variable)


def _discover(nodes: Sequence[dict[str, Any]], folder: Path) -> Check:
    """Write discovered_environment.json in the doctor's folder; a check that names the nodes' differences."""
    found = {str(node["host"]): node["environment"] for node in sorted(nodes, key=lambda node: str(node["host"]))}
    differences = node_differences(found)
    path = CampaignPaths(folder).discovered
    try:
        write_json(path, {"written_t": time.time(), "nodes": found, "differences": differences})
        where = str(path)
    except OSError as error:
        where = f"{path} cannot be written ({error.strerror})"
    same = "no differences" if len(found) > 1 else "one node only"
    return NODE_DIFFERENCES.result(not differences, f"{'; '.join(differences) or same}; {where}", file=path.name)


def node_differences(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """`memory: node1 503 GiB, node2 251 GiB`, by subject; addresses of interfaces are each node's own."""
    shown = {host: {**facts, "nics": _without_addresses(facts["nics"])} for host, facts in found.items()}
    subjects = dict.fromkeys(subject for facts in shown.values() for subject in facts)
    unlike = [one for one in subjects if len({json.dumps(facts.get(one), sort_keys=True) for facts in shown.values()}) > 1]
    return [f"{one}: {', '.join(_named_values({host: facts.get(one) for host, facts in shown.items()}))}" for one in unlike]


def _without_addresses(nics: Mapping[str, str]) -> dict[str, str]:
    return {name: ", ".join(part for part in text.split(", ") if not _ADDRESS.fullmatch(part)) for name, text in nics.items()}


def _named_values(by_host: Mapping[str, Any]) -> Iterator[str]:
    """Values by name; of tables and lists only what nodes do not share."""
    tables = {
        host: dict(value) if isinstance(value, dict) else dict.fromkeys(value, "") for host, value in by_host.items() if _is_many(value)
    }
    if len(tables) < len(by_host):
        yield from (f"{host} {value if value not in ('', None) else 'none'}" for host, value in by_host.items())
        return
    common = set.intersection(*(set(table.items()) for table in tables.values()))
    for host, table in tables.items():
        own = [f"{name} {value}".strip() for name, value in table.items() if (name, value) not in common]
        yield f"{host} {' and '.join(own) or 'nothing more'}"


def _is_many(value: object) -> bool:
    return isinstance(value, (dict, list))


def _cancel(options: Sequence[str], call: Call) -> Check:
    argv = [
        "sbatch",
        "--parsable",
        "--nodes=1",
        "--time=5",
        "--output=/dev/null",
        "--job-name=seatrial-doctor",
        *options,
        "--wrap=sleep 300",
    ]
    answer = call(argv)
    if not answer.ok:
        return CANCEL.result(False, answer.problem)
    job = answer.stdout.strip().partition(";")[0]
    cancelled = slurm.cancel(job)
    until_m = time.monotonic() + CANCEL_TIMEOUT_S
    while cancelled.ok and time.monotonic() < until_m:
        jobs = slurm.own_jobs()
        if jobs is not None and (job not in jobs or jobs[job].is_over):
            return CANCEL.result(True, f"job {job} is gone")
        time.sleep(POLL_S)
    return CANCEL.result(False, f"job {job} was still there after {CANCEL_TIMEOUT_S:.0f} s" if cancelled.ok else cancelled.problem)
