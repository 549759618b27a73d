"""How much memory this process and its GPU hold. In: /proc and torch where the workload has it. Out: MiB, null where unknown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# As in seatrial.units, which the probe does not bring along.
MIB = 1 << 20


def memory_mib() -> dict[str, float | None]:
    """The fields of a `memory` event."""
    cuda = _initialised_cuda()
    return {
        "allocated_mib": _mib(cuda.memory_allocated()) if cuda else None,
        "reserved_mib": _mib(cuda.memory_reserved()) if cuda else None,
        "peak_mib": _mib(cuda.max_memory_allocated()) if cuda else None,
        "rss_mib": _rss_mib(),
    }


def _initialised_cuda() -> Any | None:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _rss_mib() -> float | None:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return _mib(pages * os.sysconf("SC_PAGE_SIZE"))


def _mib(count: int) -> float:
    return round(count / MIB, 3)
