"""Memory of a dummy training, really taken. In: settings. Out: a `Memory` that the training calls after every step: what leaks, a cache
that fills and then stays, a saw-tooth that is given back."""

from __future__ import annotations

import mmap

from seatrial.units import MIB
from seatrial_workloads.dummy.settings import Settings


class Memory:
    """Pieces that one rank holds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leaked: list[mmap.mmap] = []
        self._cache: list[mmap.mmap] = []
        self._saw: list[mmap.mmap] = []

    def after(self, step: int) -> None:
        """What a step leaves behind, takes and gives back."""
        settings = self._settings
        self._leaked += taken(settings.leak_mib_per_step)
        if step < settings.cache_steps:
            self._cache += taken(settings.cache_mib / settings.cache_steps)
        if step % settings.saw_every == 0:
            self._saw.clear()
        self._saw += taken(settings.saw_mib / settings.saw_every)


def taken(mib: float) -> list[mmap.mmap]:
    """One piece of memory, none for 0. Pages of its own, which go back to the kernel at once when it is let go: a heap may keep them."""
    size = int(mib * MIB)
    if size == 0:
        return []
    # Private, so that the kernel makes one range of many pieces: a process may have only some 65,000 of them.
    piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    # The kernel gives no memory to pages that nobody has touched.
    for page in range(0, size, mmap.PAGESIZE):
        piece[page] = 1
    return [piece]
