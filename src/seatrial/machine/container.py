"""Which container this process runs in, if any.

In: the files and variables that container runtimes leave. Out: a word (`docker`, `podman`, `kubernetes`, `apptainer`, `singularity`,
`lxc` …) and, where it can be read, the beginning of the container's id or the image's name; empty outside of a container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ID_LENGTH = 12
# In both, a container's id stands in a path: of its control group, or of the files mounted into it.
_ID_SOURCES = ("proc/1/cgroup", "proc/self/mountinfo")
_ID = re.compile(r"(?:/containers/|/docker/|/docker-|/libpod-|cri-containerd-|/crio-|/pod[0-9a-f_-]{36}/)(?P<id>[0-9a-f]{64})")
_KIND_IN_GROUP = {"kubepods": "kubernetes", "libpod": "podman", "/docker": "docker", "/lxc": "lxc", "/garden": "garden"}


def container(root: Path = Path("/"), env: Mapping[str, str] | None = None) -> str:
    """What this process runs in; `root` and `env` stand in for the machine's own in tests."""
    variables = os.environ if env is None else env
    kind, name = next(_found(root, variables), ("", ""))
    return f"{kind} {name}".strip()


def _found(root: Path, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(kind, id or image), the surest sign first: a pod is also a container of its runtime."""
    for kind in ("apptainer", "singularity"):
        if image := env.get(f"{kind.upper()}_CONTAINER"):
            yield kind, Path(image).name
    if env.get("KUBERNETES_SERVICE_HOST"):
        yield "kubernetes", _id(root)
    if (root / "run/.containerenv").is_file():
        yield "podman", _podman_id(root) or _id(root)
    if (root / ".dockerenv").exists():
        yield "docker", _id(root)
    groups = _text(root / "proc/1/cgroup")
    for mark, kind in _KIND_IN_GROUP.items():
        if mark in groups:
            yield kind, _id(root)
    # systemd and the runtimes that boot it say it in a file, others in a variable.
    for told in (_text(root / "run/systemd/container"), env.get("container", "")):
        if told.strip():
            yield told.split()[0], _id(root)


def _podman_id(root: Path) -> str:
    """podman writes `id="…"` only for some containers."""
    found = re.search(r'^id="(?P<id>[0-9a-f]+)"', _text(root / "run/.containerenv"), re.MULTILINE)
    return found["id"][:ID_LENGTH] if found else ""


def _id(root: Path) -> str:
    for source in _ID_SOURCES:
        found = _ID.search(_text(root / source))
        if found:
            return found["id"][:ID_LENGTH]
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
