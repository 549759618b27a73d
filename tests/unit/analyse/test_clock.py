"""A wall clock that is set while a run runs."""

from __future__ import annotations

import polars as pl
import pytest

from seatrial.analyse.clock import ClockJump, clock_jump
from seatrial.collect.step_schema import STEP_SCHEMA


def steps(offsets: list[float | None], rank: int = 0) -> pl.DataFrame:
    """One step a second, the wall clock ahead of the monotonic one by each offset."""
    rows = [
        {"rank": rank, "step": at, "m": 100.0 + at, "t": None if offset is None else 1e9 + at + offset} for at, offset in enumerate(offsets)
    ]
    return pl.DataFrame(rows, schema=STEP_SCHEMA)


@pytest.mark.parametrize("offsets", [[0.0] * 5, [0.0, 0.5, -0.5, 1.0], [None, 0.0, None, 0.1], [], [0.0], [None, None]])
def test_small_corrections_are_no_jump(offsets: list[float | None]) -> None:
    assert clock_jump(steps(offsets)) is None


@pytest.mark.parametrize("jump_s", [-3600.0, 366 * 86400.0, 2.5])
def test_the_largest_jump_is_told(jump_s: float) -> None:
    found = clock_jump(steps([0.0, 0.0, jump_s, jump_s]))
    assert found == ClockJump(step=2, jump_s=pytest.approx(jump_s))


def test_clocks_of_two_hosts_may_differ() -> None:
    assert clock_jump(pl.concat([steps([0.0, 0.0]), steps([500.0, 500.0], rank=1)])) is None
