"""Rolling windows as the seeds define them, against a plain reckoning."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.timing_points import COLUMNS, SEED_ITER, logged_rows, seed_iter_ms, timing_points
from seatrial.records.events import PHASES
from tests.unit.analyse import factory


def plainly(steps: pl.DataFrame, log_every: int, window: int) -> list[tuple[int, dict[str, float | None]]]:
    """One window after another, with numpy's own percentile."""
    rows, held, points = steps.to_dicts(), [], []
    for row in rows:
        phases = [row[name] for name in PHASES if row[name] is not None]
        held.append({**row, "iter_ms": sum(phases) if phases else row["iter_ms"]})
        if row["step"] % log_every == 0:
            last = held[-window:]
            values: dict[str, float | None] = {}
            for name in COLUMNS:
                known = [item[name] for item in last if item[name] is not None]
                for quantile in (50, 90):
                    values[f"{name}_p{quantile}"] = float(np.percentile(known, quantile)) if known else None
            points.append((row["step"], values))
    return points


@pytest.mark.parametrize(("log_every", "window"), [(10, 100), (1, 7), (7, 3), (50, 1)])
def test_equals_the_plain_reckoning(log_every: int, window: int) -> None:
    generator = np.random.default_rng(1)
    phases = {name: [None if step % 3 else float(generator.uniform(1, 9)) for step in range(150)] for name in PHASES[:3]}
    steps = factory.steps_of(list(generator.uniform(40, 60, 150)), **phases)
    found = timing_points(steps.with_columns(seed_iter_ms().alias(SEED_ITER)), log_every, window)
    expected = plainly(steps, log_every, window)
    assert [point.step for point in found] == [step for step, _ in expected]
    assert [point.index for point in found] == list(range(len(expected)))
    for point, (_, values) in zip(found, expected, strict=True):
        assert point.values == pytest.approx(values)


def test_iter_is_the_sum_of_phases_where_there_are_any_else_wall() -> None:
    steps = factory.steps_of([50.0, 60.0], fwd_ms=[10.0, None], bwd_ms=[20.0, None])
    first, second = timing_points(steps.with_columns(seed_iter_ms().alias(SEED_ITER)), 1, 1)
    assert first.values["iter_ms_p50"] == 30.0
    assert second.values["iter_ms_p50"] == 60.0
    assert second.values["fwd_ms_p50"] is None


def test_lines_that_skip_the_multiples_still_give_points() -> None:
    assert logged_rows(np.array([1, 11, 21, 31, 41, 51]), 20).tolist() == [2, 4]
    assert logged_rows(np.array([], dtype=np.int64), 20).tolist() == []


def test_no_steps_no_points() -> None:
    assert timing_points(factory.steps_of([]).with_columns(seed_iter_ms().alias(SEED_ITER)), 10, 100) == ()
