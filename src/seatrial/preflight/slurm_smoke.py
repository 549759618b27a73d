"""`seatrial doctor --place slurm`: what a cluster must be able to do, tried with small jobs before the first real one.

Five phases: Slurm's basics (`preflight.slurm`, without a job), the shared file system from the nodes, task layouts and cancel, GPUs, and
InfiniBand; then what a re-run needs: the environment on all nodes, the interface and its address, HF_HOME and RUNS_ROOT on a file system
that all share. In: the place. Out: checks. Jobs that do not start within IMMEDIATE_S are given up.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seatrial.core.paths import TRIAL_PREFIX
from seatrial.core.text import count
from seatrial.machine import slurm
from seatrial.machine.network import match_nccl_interfaces
from seatrial.machine.processes import AGENT_MODULE
from seatrial.preflight.definitions import information, refusal, warning
from seatrial.records.caution import Check
from seatrial.records.plan import PlaceSpec, SlurmSpec

NODE_MODULE = f"{AGENT_MODULE}.slurm_node"
IMMEDIATE_S = 60
JOB_TIMEOUT_S = IMMEDIATE_S + 120.0
CANCEL_TIMEOUT_S = 60.0
POLL_S = 1.0

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
    what="whether each node of a job with GPUs shows as many as it asked for",
    prevents="torch.cuda.is_available() is False, or ranks that share a GPU",
    fix="set place.gpus_per_node; ask the administrators about GRES (`scontrol show node`)",
)
INFINIBAND = information(
    name="InfiniBand",
    what="the adapters of the nodes",
    prevents="NCCL over TCP where InfiniBand was meant",
    fix="NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME belong into site.yaml",
)
PYTHONS = warning(
    name="Python on all nodes",
    what="whether all nodes have the same version",
    prevents="errors on one node only",
    fix="use one environment on the shared file system",
)
ADDRESS = refusal(
    name="interface on all nodes",
    what="whether each node has an address on the named interface",
    prevents="NCCL WARN Bootstrap : no socket interface found",
    fix="correct place.interface or the site's; `ip -4 addr` on a node shows them",
)
FOLDERS = warning(
    name="{variable} on all nodes",
    what="whether HF_HOME and RUNS_ROOT are the same folder on all nodes",
    prevents="a model that each node downloads for itself, or results on a node's own disk",
    fix="point {variable} at a folder on the shared file system",
)
SMOKE_CHECKS = (JOB, SHARED, TASKS, CANCEL, GPUS, INFINIBAND, PYTHONS, ADDRESS, FOLDERS)

Call = Callable[..., slurm.Answer]


def try_jobs(place: PlaceSpec, folder: Path, node_argv: Sequence[str], call: Call = slurm.call) -> Iterator[Check]:
    """`node_argv` starts NODE_MODULE on a node."""
    wanted = place.slurm or SlurmSpec()
    options = [f"--{name}={value}" for name, value in slurm.resource_options(wanted) if value is not None and name != "time"]
    common = ["srun", "--time=5", f"--immediate={IMMEDIATE_S}", "--mpi=none", "--job-name=seatrial-doctor", *options]
    began_m = time.monotonic()
    layout = [f"--nodes={place.nodes}", "--ntasks-per-node=1"]
    answer = call([*common, *layout, *node_argv, str(folder.absolute()), str(place.nodes)], timeout_s=JOB_TIMEOUT_S)
    nodes = [found for line in answer.stdout.splitlines() if isinstance(found := _json(line), dict)]
    hosts = sorted(str(node["host"]) for node in nodes)
    reached = answer.ok and len(set(hosts)) == place.nodes
    took = f"{', '.join(hosts)} in {time.monotonic() - began_m:.0f} s" if reached else answer.problem
    yield JOB.result(reached, took, nodes=place.nodes)
    if reached:
        yield from _check_nodes(place, wanted, nodes, folder)
    two = call([*common, "--nodes=1", "--ntasks=2", "hostname"], timeout_s=JOB_TIMEOUT_S)
    yield TASKS.result(two.ok and len(two.stdout.split()) == 2, "both ran" if two.ok else two.problem)
    yield _cancel(options, call)


def _json(line: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(line)
    return None


def _check_nodes(place: PlaceSpec, wanted: SlurmSpec, nodes: Sequence[dict[str, Any]], folder: Path) -> Iterator[Check]:
    hosts = {str(node["host"]) for node in nodes}
    trials = list(folder.glob(f"{TRIAL_PREFIX}{nodes[0]['job']}-*"))
    blind = [f"{node['host']} ({node['problem'] or 'does not see the others'})" for node in nodes if set(node["sees"]) != hosts]
    here = [] if len(trials) == len(hosts) else ["this host does not see what they wrote"]
    yield SHARED.result(not blind and not here, "; ".join([*blind, *here]) or f"seen by {count(len(hosts), 'node')} and here")
    for trial in trials:
        trial.unlink(missing_ok=True)
    asked = wanted.gpus_per_node
    if asked:
        wrong = [f"{node['host']} shows {node['gpus']}" for node in nodes if node["gpus"] != asked]
        yield GPUS.result(not wrong, "; ".join(wrong) or f"{asked} on each node")
    adapters = sorted({f"{name} {text}" for node in nodes for name, text in node["infiniband"].items()})
    yield INFINIBAND.result(True, "; ".join(adapters) or "none")
    versions = sorted({str(node["python"]) for node in nodes})
    yield PYTHONS.result(len(versions) == 1, ", ".join(versions))
    if place.interface:
        missing = [str(node["host"]) for node in nodes if not match_nccl_interfaces(place.interface, node["interfaces"])]
        yield ADDRESS.result(not missing, f"none of {place.interface} on {', '.join(missing)}" if missing else place.interface)
    for variable in sorted({name for node in nodes for name in node["folders"]}):
        found = {node["folders"].get(variable, "") for node in nodes}
        same = len(found) == 1 and "" not in found
        yield FOLDERS.result(same, "the same folder" if same else "not there, or another folder, on some nodes", variable=variable)


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
