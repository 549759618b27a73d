"""One node's part in `seatrial doctor --place slurm`: `python -m seatrial.agent.slurm_smoke_node FOLDER NODES`, started by srun on each.

Writes a file to the shared folder and to HF_HOME and RUNS_ROOT, waits for the other nodes' files, and prints one line of JSON: what it saw,
and the environment of the node (system, processors, memory, GPUs, interfaces, mounts, Slurm, modules, conda, Python).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from seatrial.core.paths import TRIAL_PREFIX, TRIAL_SEEN
from seatrial.core.text import format_bytes
from seatrial.machine import slurm
from seatrial.machine.gpus import read_driver
from seatrial.machine.host import detect_container, read_host
from seatrial.machine.network import INFINIBAND, describe_ethernet, describe_infiniband, list_interfaces
from seatrial.machine.software import package_version

SEEN_TIMEOUT_S = 15.0
# Such a folder may be local to the node.
CACHE_TIMEOUT_S = 5.0
POLL_S = 0.2
CACHES = ("HF_HOME", "RUNS_ROOT")
PACKAGES = ("torch", "transformers", "deepspeed", "seatrial")
OS_RELEASE = Path("/etc/os-release")
# Kernel interfaces, which hold no files of users.
PSEUDO = frozenset(
    {"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl", "hugetlbfs"}
    | {"mqueue", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs", "tracefs"}
)


def facts(folder: Path, nodes: int) -> dict[str, Any]:
    """What this node sees."""
    host, job = socket.gethostname(), os.environ.get("SLURM_JOB_ID", "")
    problem = _write_trial(folder, job, host)
    seen = _wait_for_others(folder, job, nodes, SEEN_TIMEOUT_S)
    return {
        "host": host,
        "job": job,
        "problem": problem,
        "sees": seen,
        "gpus": len([one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]),
        "infiniband": dict(describe_infiniband(INFINIBAND)),
        "interfaces": {name: list(addresses) for name, addresses in list_interfaces().items()},
        "folders": _try_caches(folder, job, host, nodes),
        "environment": environment(),
    }


def _write_trial(folder: Path, job: str, host: str) -> str:
    """Write the trial file; returns why that failed, empty where it did not."""
    try:
        # Others can guess the name: an existing file or link is not written to.
        fd = os.open(folder / f"{TRIAL_PREFIX}{job}-{host}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.close(fd)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def _wait_for_others(folder: Path, job: str, nodes: int, timeout_s: float) -> list[str]:
    until_m = time.monotonic() + timeout_s
    while True:
        # A network file system shows new files when the folder is read again.
        seen = sorted(path.name.rpartition(f"{job}-")[2] for path in folder.glob(f"{TRIAL_PREFIX}{job}-*"))
        if len(seen) >= nodes or time.monotonic() > until_m:
            return seen
        time.sleep(POLL_S)


def _try_caches(folder: Path, job: str, host: str, nodes: int) -> dict[str, dict[str, Any]]:
    """For each variable that is set: its path, identity, and the nodes whose files are seen there; none where it is not writable."""
    paths = {name: Path(os.environ[name]) for name in CACHES if os.environ.get(name)}
    found: dict[str, dict[str, Any]] = {}
    for name, path in paths.items():
        problem = "is not a folder" if not path.is_dir() else _write_trial(path, job + name, host)
        sees = [] if problem else _wait_for_others(path, job + name, nodes, CACHE_TIMEOUT_S)
        found[name] = {"path": str(path), "problem": problem, "sees": sees, "identity": _identity(path)}
    if paths:
        # No file may be removed before all nodes have looked, which they record in the shared folder.
        _write_trial(folder, f"{job}{TRIAL_SEEN}", host)
        _wait_for_others(folder, f"{job}{TRIAL_SEEN}", nodes, CACHE_TIMEOUT_S)
    for name, path in paths.items():
        with contextlib.suppress(OSError):
            (path / f"{TRIAL_PREFIX}{job}{name}-{host}").unlink()
    return found


def _identity(path: Path) -> str:
    """Equal on all nodes that have the same folder there; empty where it is missing."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_ino}:{found.st_mtime_ns}"


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Everything in which nodes may differ; different addresses are normal."""
    host, driver = read_host(), read_driver()
    return {
        "os": _os_name(),
        "kernel": platform.release(),
        "cpu": host.cpu,
        "cpus": psutil.cpu_count() or 0,
        "memory": format_bytes(host.memory_bytes),
        "gpus": [gpu.name for gpu in driver.gpus],
        "driver": "none" if driver.no_driver else driver.version or driver.problem,
        "cuda": driver.cuda,
        "nics": dict(describe_ethernet(psutil.net_if_addrs(), psutil.net_if_stats())),
        "infiniband": dict(describe_infiniband(INFINIBAND)),
        "mounts": dict(_mounts()),
        "slurm": _slurm_version(),
        "modules": [name for name in variables.get("LOADEDMODULES", "").split(":") if name],
        "module_system": next((name for name in ("LMOD_DIR", "MODULESHOME") if variables.get(name)), ""),
        "conda": variables.get("CONDA_PREFIX") or shutil.which("conda") or "",
        "venv": sys.prefix if sys.prefix != sys.base_prefix else "",
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: version for name in PACKAGES if (version := package_version(name))},
        "container": detect_container(),
    }


def _os_name() -> str:
    with contextlib.suppress(OSError):
        for line in OS_RELEASE.read_text(errors="replace").splitlines():
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip().strip('"')
    return platform.system()


def _mounts() -> Iterator[tuple[str, str]]:
    """Mount point → type and source, without kernel interfaces."""
    for part in psutil.disk_partitions(all=True):
        # Not accessed: the server of a network mount may be gone.
        if part.fstype not in PSEUDO:
            yield part.mountpoint, f"{part.fstype} {part.device}"


def _slurm_version() -> str:
    if shutil.which("srun") is None:
        return ""
    answer = slurm.call(["srun", "--version"])
    return answer.stdout.strip() if answer.ok else ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts(Path(sys.argv[1]), int(sys.argv[2]))) + "\n")
