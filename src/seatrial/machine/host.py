"""Facts about this host that do not change while the process lives."""

from __future__ import annotations

import functools
import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True)
class Host:
    """This machine."""

    name: str
    platform: str
    cpu: str
    cpu_count: int
    """Logical processors that this process may use; a container or taskset may leave fewer than the machine has."""
    memory_bytes: int


@functools.cache
def host() -> Host:
    """Read once in a process."""
    return Host(
        name=socket.gethostname(),
        platform=platform.platform(),
        cpu=cpu_model(),
        cpu_count=usable_cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
    )


def cpu_model(cpu_info: Path = _CPU_INFO) -> str:
    """The processor's name, or at least its architecture where the kernel gives no name."""
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("model name", "cpu model") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine()


def usable_cpu_count() -> int:
    """How many processors the scheduler may give to this process."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1
