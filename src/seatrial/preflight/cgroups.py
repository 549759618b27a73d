"""What a container or a job scheduler leaves of the host: memory, processor time and number of processes, by control groups v1 and v2.

A limit anywhere above this process holds, so the lowest of them counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")
# v1 writes "no limit" as the largest number of pages.
NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, kw_only=True)
class CgroupFacts:
    """None where there is no limit."""

    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    """Without the file cache that the kernel gives back when it must; of the group whose limit counts."""
    cpu_cores: float | None = None
    process_limit: int | None = None
    process_count: int | None = None


def read_cgroups(membership: Path = MEMBERSHIP, root: Path = ROOT) -> CgroupFacts:
    """The limits this process lives under."""
    lowest, used = _memory(membership, root)
    quotas = [quota for folder in _folders(membership, root, "cpu") if (quota := _quota(folder)) is not None]
    process_limit, process_count = _processes(membership, root)
    return CgroupFacts(
        memory_limit_bytes=lowest,
        memory_used_bytes=used,
        cpu_cores=min(quotas, default=None),
        process_limit=process_limit,
        process_count=process_count,
    )


def _processes(membership: Path, root: Path) -> tuple[int | None, int | None]:
    limits = [
        (limit, _number(folder / "pids.current") or 0)
        for folder in _folders(membership, root, "pids")
        if (limit := _number(folder / "pids.max")) is not None
    ]
    return min(limits, default=(None, None))


def _memory(membership: Path, root: Path) -> tuple[int | None, int | None]:
    limits = []
    for folder in _folders(membership, root, "memory"):
        for limit_name, used_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and limit < NO_LIMIT_BYTES:
                limits.append((limit, max(0, (used or 0) - _stat(folder, cache_name))))
    return min(limits, default=(None, None))


def _folders(membership: Path, root: Path, controller: str) -> Iterator[Path]:
    """Every group this process is in for `controller`, its own first, then those above."""
    text = ""
    with contextlib.suppress(OSError):
        text = membership.read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            yield from _upwards(root, path)
        elif controller in names.split(","):
            yield from _upwards(root / controller, path)
            yield from _upwards(root / names, path) if names != controller else ()


def _upwards(base: Path, path: str) -> Iterator[Path]:
    folder = base / path.lstrip("/")
    while folder != base and base in folder.parents:
        yield folder
        folder = folder.parent
    # Inside a container the path of the host is often not there, and the mount itself is the group.
    yield base


def _quota(folder: Path) -> float | None:
    """Cores that a group's quota is worth."""
    with contextlib.suppress(OSError, ValueError):
        quota, _, period = (folder / "cpu.max").read_text(encoding="ascii").strip().partition(" ")
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and quota_us > 0 and period_us else None


def _number(path: Path) -> int | None:
    """The whole number in a file; None for `max`, no file, or no number."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _stat(folder: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
