"""Facts about this host that do not change while the process lives: name, platform, CPU, memory, file systems, and its container, if any.

In: /proc, and the files and variables that container runtimes leave. Out: `Host`, and `docker 0123456789ab` or the like.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from seatrial.machine.processes import read_text

SHARED_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "virtiofs", "9p", "cifs", "smb3", "glusterfs", "fuse.juicefs"}
)
"""Types of file systems that the nodes of a cluster have in common."""
_CPU_INFO = Path("/proc/cpuinfo")
ID_LENGTH = 12
# Both contain the container's id in a path: of its cgroup, or of the files mounted into it.
_ID_SOURCES = ("proc/1/cgroup", "proc/self/mountinfo")
_ID = re.compile(r"(?:/containers/|/docker/|/docker-|/libpod-|cri-containerd-|/crio-|/pod[0-9a-f_-]{36}/)(?P<id>[0-9a-f]{64})")
_KIND_IN_CGROUP = {"kubepods": "kubernetes", "libpod": "podman", "/docker": "docker", "/lxc": "lxc", "/garden": "garden"}


@dataclass(frozen=True, kw_only=True)
class Host:
    """This machine."""

    name: str
    platform: str
    cpu: str
    cpu_count: int
    """Logical CPUs that this process may use; a container or taskset may leave fewer than the machine has."""
    memory_bytes: int


@functools.cache
def read_host() -> Host:
    """Read once in a process."""
    return Host(
        name=socket.gethostname(),
        platform=platform.platform(),
        cpu=cpu_model(),
        cpu_count=usable_cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
    )


def cpu_model(cpu_info: Path = _CPU_INFO) -> str:
    """The CPU's model name, or its architecture where the kernel gives none."""
    for line in read_text(cpu_info).splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("model name", "cpu model") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine()


def usable_cpu_count() -> int:
    """How many CPUs the scheduler may give to this process."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def detect_container(root: Path = Path("/"), env: Mapping[str, str] | None = None) -> str:
    """The container runtime (`docker`, `podman`, `kubernetes`, `apptainer`, `singularity`, `lxc` …) and, where it can be read, the
    beginning of the container's id or the image's name; empty outside of a container. `root` and `env` are for tests."""
    kind, name = next(_container_signs(root, os.environ if env is None else env), ("", ""))
    return f"{kind} {name}".strip()


def _container_signs(root: Path, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(runtime, id or image), the most specific first: a pod is also a container of its runtime."""
    for kind in ("apptainer", "singularity"):
        if image := env.get(f"{kind.upper()}_CONTAINER"):
            yield kind, Path(image).name
    if env.get("KUBERNETES_SERVICE_HOST"):
        yield "kubernetes", _container_id(root)
    if (root / "run/.containerenv").is_file():
        yield "podman", _podman_id(root) or _container_id(root)
    if (root / ".dockerenv").exists():
        yield "docker", _container_id(root)
    cgroups = read_text(root / "proc/1/cgroup")
    for part, kind in _KIND_IN_CGROUP.items():
        if part in cgroups:
            yield kind, _container_id(root)
    # systemd and the runtimes that boot it write a file, others set a variable.
    for text in (read_text(root / "run/systemd/container"), env.get("container", "")):
        if text.strip():
            yield text.split()[0], _container_id(root)


def _podman_id(root: Path) -> str:
    """podman writes `id="…"` only for some containers."""
    found = re.search(r'^id="(?P<id>[0-9a-f]+)"', read_text(root / "run/.containerenv"), re.MULTILINE)
    return found["id"][:ID_LENGTH] if found else ""


def _container_id(root: Path) -> str:
    found = (_ID.search(read_text(root / source)) for source in _ID_SOURCES)
    return next((match["id"][:ID_LENGTH] for match in found if match), "")


def file_system_and_mount(folder: Path) -> tuple[str, str]:
    """Type and mount point of the file system that holds `folder`."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    resolved = folder.resolve()
    mount = next((str(path) for path in (resolved, *resolved.parents) if str(path) in mounts), "/")
    return mounts.get(mount, ""), mount


def is_on_all_nodes(folder: Path, shared: str) -> bool:
    """Whether nodes are known to see at `folder` what is there here: below the site's shared root, or on a network's file system."""
    if shared:
        return folder.resolve().is_relative_to(Path(shared).resolve())
    return file_system_and_mount(folder.absolute())[0] in SHARED_FILE_SYSTEMS
