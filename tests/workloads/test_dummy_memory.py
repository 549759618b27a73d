"""Memory of a dummy training: what is taken, kept and given back, counted in the pieces that a rank holds."""

from __future__ import annotations

import pytest

from seatrial.units import MIB
from seatrial_workloads.dummy.memory import Memory, taken
from seatrial_workloads.dummy.settings import Settings


def held_mib(memory: Memory) -> tuple[float, float, float]:
    """Of the leak, the cache and the saw-tooth."""
    leaked, cache, saw = (sum(len(piece) for piece in pieces) / MIB for pieces in (memory._leaked, memory._cache, memory._saw))
    return leaked, cache, saw


def test_a_healthy_training_holds_nothing() -> None:
    memory = Memory(Settings())
    for step in range(5):
        memory.after(step)
    assert held_mib(memory) == (0, 0, 0)


def test_a_leak_grows_with_every_step() -> None:
    memory = Memory(Settings(leak_mib_per_step=0.5))
    for step in range(4):
        memory.after(step)
    assert held_mib(memory) == (2.0, 0, 0)


def test_a_cache_fills_and_then_stays() -> None:
    memory = Memory(Settings(cache_mib=1.0, cache_steps=4))
    held = []
    for step in range(6):
        memory.after(step)
        held.append(held_mib(memory)[1])
    assert held == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_a_saw_tooth_is_given_back_all_at_once() -> None:
    memory = Memory(Settings(saw_mib=1.0, saw_every=2))
    held = []
    for step in range(5):
        memory.after(step)
        held.append(held_mib(memory)[2])
    assert held == [0.5, 1.0, 0.5, 1.0, 0.5]


@pytest.mark.parametrize(("mib", "sizes"), [(0, []), (1e-9, []), (0.25, [MIB // 4])])
def test_a_piece_is_of_the_size_asked_for_and_none_for_nothing(mib: float, sizes: list[int]) -> None:
    assert [len(piece) for piece in taken(mib)] == sizes


def test_every_page_of_a_piece_has_been_touched() -> None:
    (piece,) = taken(0.1)
    assert all(piece[page] == 1 for page in range(0, len(piece), 4096))
