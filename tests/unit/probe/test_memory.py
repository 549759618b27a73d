"""How much memory a process and its GPU hold."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.probe import memory
from seatrial.probe.memory import MIB, memory_mib

FIELDS = {"allocated_mib", "reserved_mib", "peak_mib", "rss_mib"}


def fake_torch(*, initialised: bool) -> Any:
    def refuse() -> int:
        raise AssertionError("CUDA is not up, and asking would bring it up")

    def told(mib: float) -> Any:
        return (lambda: int(mib * MIB)) if initialised else refuse

    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        memory_allocated=told(1.5),
        memory_reserved=told(2),
        max_memory_allocated=told(3),
    )
    return SimpleNamespace(cuda=cuda)


def test_without_torch_only_the_process_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = memory_mib()
    assert set(found) == FIELDS and found["rss_mib"] and found["rss_mib"] > 1
    assert [found[name] for name in ("allocated_mib", "reserved_mib", "peak_mib")] == [None] * 3
    assert "torch" not in sys.modules


@pytest.mark.parametrize("torch", [SimpleNamespace(), fake_torch(initialised=False)])
def test_a_torch_whose_cuda_is_not_up_is_left_alone(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert memory_mib()["allocated_mib"] is None


def test_what_the_allocator_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(initialised=True))
    found = memory_mib()
    assert (found["allocated_mib"], found["reserved_mib"], found["peak_mib"]) == (1.5, 2.0, 3.0)


@pytest.mark.parametrize("content", [None, "", "12", "12 x"])
def test_where_the_kernel_does_not_tell_it_is_null(content: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    statm = tmp_path / "statm"
    if content is not None:
        statm.write_text(content)
    monkeypatch.setattr(memory, "Path", lambda name: statm)
    assert memory_mib()["rss_mib"] is None
