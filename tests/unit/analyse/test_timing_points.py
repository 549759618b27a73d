"""Rolling windows as the seeds define them, against a plain reckoning."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

from seatrial.analyse.timing_points import COLUMNS, SEED_ITER, logged_rows, seed_iter_ms, seed_iter_of, timing_points
from seatrial.records.events import PHASES
from tests.unit.analyse import factory


def plainly(steps: pl.DataFrame, log_every: int, window: int) -> list[tuple[int, dict[str, float | None]]]:
    """One window after another, with numpy's own percentile."""
    rows, held, points = steps.to_dicts(), [], []
    phased = any(row["fwd_ms"] is not None for row in rows)
    logged = -1
    for row in rows:
        if phased and row["fwd_ms"] is None:
            continue
        phases = [row[name] for name in PHASES if row[name] is not None]
        held.append({**row, "iter_ms": sum(phases) if phased else row["iter_ms"]})
        if row["step"] // log_every > logged:
            logged = row["step"] // log_every
            last = [item for item in held if item["step"] > row["step"] - window]
            values: dict[str, float | None] = {}
            for name in COLUMNS:
                known = [item[name] for item in last if item[name] is not None]
                for quantile in (50, 90):
                    values[f"{name}_p{quantile}"] = float(np.percentile(known, quantile)) if known else None
            points.append((row["step"], values))
    return points


@pytest.mark.parametrize("phase_every", [1, 3, None])
@pytest.mark.parametrize(("log_every", "window"), [(10, 100), (1, 7), (7, 3), (50, 1)])
def test_equals_the_plain_reckoning(log_every: int, window: int, phase_every: int | None) -> None:
    generator = np.random.default_rng(1)

    def taken(step: int) -> float | None:
        return float(generator.uniform(1, 9)) if phase_every and step % phase_every == 0 else None

    phases = {name: [taken(step) for step in range(150)] for name in PHASES[1:]}
    waits = [float(generator.uniform(0, 1)) for _ in range(150)]
    steps = factory.steps_of(list(generator.uniform(40, 60, 150)), data_wait_ms=waits, **phases)
    found = timing_points(steps.with_columns(seed_iter_ms().alias(SEED_ITER)), log_every, window)
    expected = plainly(steps, log_every, window)
    assert [point.step for point in found] == [step for step, _ in expected]
    assert [point.index for point in found] == list(range(len(expected)))
    for point, (_, values) in zip(found, expected, strict=True):
        assert point.values == pytest.approx(values)


def iters(**phases: list[float | None]) -> list[float | None]:
    return factory.steps_of([50.0, 60.0], **phases).select(seed_iter_ms()).to_series().to_list()


def test_iter_is_the_sum_of_phases_on_steps_that_have_them() -> None:
    # As on a GPU: the wait for data is known of every step, the rest of one in so many.
    assert iters(data_wait_ms=[1.0, 2.0], fwd_ms=[10.0, None], bwd_ms=[20.0, None]) == [31.0, None]


def test_iter_is_wall_time_where_forward_and_backward_are_not_told_apart() -> None:
    assert iters(data_wait_ms=[1.0, 2.0], step_ms=[3.0, 3.0]) == [50.0, 60.0]
    assert iters() == [50.0, 60.0]


@pytest.mark.parametrize("fwd", [[1.5, 2.5], [1.5, None], [None, None]])
@pytest.mark.parametrize("bwd", [[4.1, math.nan], [None, 0.3], [None, None]])
@pytest.mark.parametrize("wait", [[0.1, 0.2], [None, 0.2]])
def test_the_column_is_what_the_expression_gives(fwd: list[float | None], bwd: list[float | None], wait: list[float | None]) -> None:
    steps = factory.steps_of([50.0, 60.0], data_wait_ms=wait, fwd_ms=fwd, bwd_ms=bwd, step_ms=[0.7, 0.9])
    assert_series_equal(seed_iter_of(steps), steps.select(seed_iter_ms().alias(SEED_ITER)).to_series(), check_exact=True)


def test_lines_that_skip_the_multiples_still_give_points() -> None:
    assert logged_rows(np.array([1, 11, 21, 31, 41, 51]), 20).tolist() == [2, 4]
    assert logged_rows(np.array([], dtype=np.int64), 20).tolist() == []


def test_no_steps_no_points() -> None:
    assert timing_points(factory.steps_of([]).with_columns(seed_iter_ms().alias(SEED_ITER)), 10, 100) == ()
