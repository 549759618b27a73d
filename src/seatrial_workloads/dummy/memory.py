"""Memory of the dummy workload on a GPU: none. Standard library only."""

from __future__ import annotations

from pathlib import Path

from seatrial.records.memory import MemoryForecast
from seatrial_workloads.dummy.settings import Settings


def forecast(settings: Settings, *, world_size: int, cwd: Path) -> MemoryForecast:
    return MemoryForecast(parts={}, moment="", world_size=world_size, notes=("nothing on a GPU",))
