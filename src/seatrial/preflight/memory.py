"""Memory that is left: of the host, or of the container where that has less, and swap in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from seatrial.preflight.cgroups import CgroupFacts, read_cgroups
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.units import format_bytes

LEAST_FREE_RATIO = 0.1
# With this much free, pages that lie in swap are old ones that nobody asks for.
EASY_FREE_RATIO = 0.2
MUCH_SWAP_BYTES = 1 << 30

FREE = Question(
    name="memory",
    looks_at="free memory of the host, or of the container where that is less",
    prevents="Killed (exit code -9 or 137); or: DataLoader worker (pid …) is killed by signal: Killed",
    fix="end what holds it (`ps aux --sort=-rss | head`), give the container more, or lower ranks and num_workers",
)
SWAP = Question(
    name="swap",
    looks_at="swap in use while memory is short",
    prevents="single steps that take seconds; no error is shown",
    fix="end what holds memory, then `sudo swapoff -a && sudo swapon -a`",
)
QUESTIONS = (FREE, SWAP)


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """Bytes; of the host, but for the container's own."""

    total_bytes: int
    free_bytes: int
    swap_used_bytes: int = 0
    group: CgroupFacts = field(default_factory=CgroupFacts)

    @property
    def limit_bytes(self) -> int:
        """What this process may have at most."""
        return min(self.total_bytes, self.group.memory_limit_bytes or self.total_bytes)

    @property
    def left_bytes(self) -> int:
        """What is left of it."""
        if self.group.memory_limit_bytes is None:
            return self.free_bytes
        return min(self.free_bytes, max(0, self.group.memory_limit_bytes - (self.group.memory_used_bytes or 0)))


def checks(need: Need) -> Iterator[Check]:
    memory = psutil.virtual_memory()
    facts = MemoryFacts(
        total_bytes=memory.total, free_bytes=memory.available, swap_used_bytes=psutil.swap_memory().used, group=read_cgroups()
    )
    yield free(facts)
    yield swap(facts)


def free(facts: MemoryFacts) -> Check:
    less = facts.limit_bytes < facts.total_bytes
    found = f"{format_bytes(facts.left_bytes)} free of {format_bytes(facts.limit_bytes)}"
    found += f" that this container may use (the host has {format_bytes(facts.total_bytes)})" if less else ""
    return FREE.answer(facts.left_bytes >= LEAST_FREE_RATIO * facts.limit_bytes, found)


def swap(facts: MemoryFacts) -> Check:
    short = facts.left_bytes < EASY_FREE_RATIO * facts.limit_bytes
    return SWAP.answer(not short or facts.swap_used_bytes < MUCH_SWAP_BYTES, f"{format_bytes(facts.swap_used_bytes)} in use")
