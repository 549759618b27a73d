"""The states of this process's random numbers, taken and put back."""

from __future__ import annotations

import random
import sys

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from seatrial_workloads.common.checkpoints.random_states import random_states, restore_random_states  # noqa: E402


def drawn() -> list[float]:
    return [random.random(), random.gauss(0.0, 1.0), float(numpy.random.rand()), float(torch.rand(1))]


def test_all_draw_on_where_they_were_also_after_a_safe_load(tmp_path):
    random.gauss(0.0, 1.0)
    torch.save(random_states(), tmp_path / "states.pt")
    expected = drawn()
    assert drawn() != expected
    restore_random_states(torch.load(tmp_path / "states.pt", weights_only=True))
    assert drawn() == expected


def test_numpy_is_kept_only_where_it_was_imported(monkeypatch):
    assert {"python", "torch", "numpy"} <= random_states().keys()
    monkeypatch.delitem(sys.modules, "numpy")
    states = random_states()
    assert "numpy" not in states
    restore_random_states(states)
