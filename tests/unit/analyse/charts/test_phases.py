"""What a step's time goes into."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analyse.charts.phases import phase_table
from seatrial.analyse.straggler_work import RankWork
from seatrial.records.measure import Window

WINDOW = Window(first_step=5, last_step=6, n=2, warmup_steps=5)


def work(phases: dict[str, list[list[float]]], iter_ms: list[list[float]] | None = None, steps: int = 2) -> RankWork:
    tables = {name: np.array(values, dtype=float).reshape(2, steps) for name, values in phases.items()}
    known = None if iter_ms is None else np.array(iter_ms)
    return RankWork(ranks=np.arange(2), steps=np.arange(5, 5 + steps), phases=tables, shared=tuple(phases), iter_ms=known)


def test_shares_are_of_the_step_and_other_is_what_no_phase_explains() -> None:
    found = phase_table(work({"fwd": [[10, 20], [30, 20]], "bwd": [[40, 40], [40, 40]]}, [[100, 100], [100, 100]]), WINDOW)
    assert found == {
        "phase": ["fwd", "bwd", "other"],
        "mean_ms": [20.0, 40.0, 40.0],
        "share_pct": [20.0, 40.0, 40.0],
        "first_step": [5] * 3,
        "last_step": [6] * 3,
        "n": [2] * 3,
    }


def test_phases_longer_than_the_step_are_shares_of_their_sum() -> None:
    found = phase_table(work({"fwd": [[60, 60], [60, 60]], "bwd": [[60, 60], [60, 60]]}, [[100, 100], [100, 100]]), WINDOW)
    assert found["share_pct"] == [50.0, 50.0, 0.0]
    assert sum(found["share_pct"]) == pytest.approx(100.0)


def test_steps_of_a_millisecond_have_shares_too() -> None:
    assert phase_table(work({"fwd": [[0.5, 0.5], [0.5, 0.5]]}, [[1.0, 1.0], [1.0, 1.0]]), WINDOW)["share_pct"] == [50.0, 50.0]


def test_nothing_of_no_steps_no_phases_or_no_time() -> None:
    assert phase_table(work({"fwd": [[], []]}, steps=0), WINDOW) == {}
    assert phase_table(work({}, [[1.0, 1.0], [1.0, 1.0]]), WINDOW) == {}
    assert phase_table(work({"fwd": [[0, 0], [0, 0]]}), WINDOW) == {}
