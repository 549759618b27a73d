"""Replayed estimates of the time to go, and the truth."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.analyse.eta_replay import MAX_POINTS, cut_blocks, eta_points, eta_quality, run_length_s
from seatrial.analyse.measure import measure_run
from seatrial.records.eta import EtaEstimator, EtaPoint
from seatrial.records.eta_model import MEDIAN_SQUARE, split_marks
from seatrial.records.plan import RunSpec, TimingSpec
from tests.unit.analyse import factory

NO_PAUSES = factory.pauses_of()


def spec(steps: int | None = 400, **timing: Any) -> RunSpec:
    return factory.spec(steps=steps, timing=TimingSpec(**{"log_every": 50, **timing}))


def times(count: int, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [100 * (1 + chance.gauss(0, 0.02)) for _ in range(count)]


def test_a_point_at_every_logged_step_with_the_truth_beside_it() -> None:
    steps = factory.steps_of([100.0] * 400)
    points = eta_points(steps, NO_PAUSES, spec())
    assert [point.step for point in points] == list(range(50, 400, 50))
    assert [point.index for point in points] == list(range(7))
    assert {(point.mode, point.source) for point in points} == {("rank0", "events")}
    for point in points:
        assert point.remain_steps == 399 - point.step
        assert point.eta_s == pytest.approx(point.remain_steps * 0.1)
        assert point.actual_s == pytest.approx(point.eta_s)


def test_pauses_are_in_the_truth_and_in_the_estimate() -> None:
    paused_at = range(40, 400, 40)
    steps = factory.steps_of(times(400))
    shift_s = np.array([sum(2.0 for at in paused_at if at <= step) for step in range(400)])
    steps = steps.with_columns(m=pl.col("m") + shift_s, t=pl.col("t") + shift_s)
    points = eta_points(steps, factory.pauses_of(*((0, at, "eval", 2000.0) for at in paused_at)), spec())
    assert points[3].actual_s == pytest.approx(19.9 + 4 * 2.0, rel=0.02)
    assert points[3].eta_s == pytest.approx(points[3].actual_s or 0.0, rel=0.02)
    assert points[3].basis_iter_ms == pytest.approx(100, rel=0.02)


def test_a_run_that_did_not_reach_its_end_has_estimates_and_no_truth() -> None:
    points = eta_points(factory.steps_of([100.0] * 200), NO_PAUSES, spec())
    assert len(points) == 3
    assert {point.actual_s for point in points} == {None}
    assert eta_quality(points, 20.0) is None


@pytest.mark.parametrize("run", [spec(steps=None), spec(eta_mode="off"), spec(eta_min_samples=1000)])
def test_no_points(run: RunSpec) -> None:
    assert eta_points(factory.steps_of([100.0] * 400), NO_PAUSES, run) == ()


def test_no_points_where_it_is_unknown_when_steps_ended() -> None:
    steps = factory.steps_of([100.0] * 400).with_columns(m=pl.lit(None, pl.Float64), t=pl.lit(None, pl.Float64))
    assert eta_points(steps, NO_PAUSES, spec()) == ()
    assert run_length_s(steps) is None


def test_the_slowest_rank_has_rows_of_its_own() -> None:
    steps = pl.concat([factory.steps_of([100.0 + 10 * rank] * 400, rank=rank) for rank in range(3)])
    points = eta_points(steps, NO_PAUSES, spec())
    rank0 = [point for point in points if point.mode == "rank0"]
    slowest = [point for point in points if point.mode == "global_max"]
    assert [point.step for point in slowest] == [point.step for point in rank0]
    assert all(slow.eta_s == pytest.approx(1.2 * quick.eta_s) for slow, quick in zip(slowest, rank0, strict=True))
    assert [point.actual_s for point in slowest] == [point.actual_s for point in rank0]


def test_a_rank_that_stopped_early_is_not_the_slowest() -> None:
    steps = pl.concat([factory.steps_of([100.0] * 400), factory.steps_of([200.0] * 120, rank=1)])
    points = [point for point in eta_points(steps, NO_PAUSES, spec()) if point.mode == "global_max"]
    assert points[0].basis_iter_ms == pytest.approx(200.0)
    assert points[-1].basis_iter_ms == pytest.approx(100.0)


def test_a_scripts_own_sparse_lines_are_enough() -> None:
    every = factory.steps_of([100.0] * 401, first_step=0).filter((pl.col("step") % 20 == 0) & (pl.col("step") > 0))
    points = eta_points(every.with_columns(span=pl.lit(20, pl.Int64)), NO_PAUSES, spec(), source="log:plan")
    assert [point.step for point in points] == [60, 100, 160, 200, 260, 300, 360, 400]
    assert {point.source for point in points} == {"steps"}
    # It counts from 1, so its last step is number 400.
    assert points[-1].remain_steps == 0
    assert points[0].eta_s == pytest.approx(points[0].remain_steps * 0.1)
    assert points[0].actual_s == pytest.approx(points[0].eta_s)


def test_lines_that_came_together_are_one_mark() -> None:
    steps = factory.steps_of([100.0] * 400)
    together = (pl.col("step") // 4 + 1) * 4 * 0.1 + 100.0
    points = eta_points(steps.with_columns(m=together), NO_PAUSES, spec(), source="log:plan")
    assert points
    assert all(point.eta_s == pytest.approx(point.remain_steps * 0.1, rel=0.02) for point in points)


def test_what_the_script_printed_are_the_points() -> None:
    steps = factory.steps_of([100.0] * 101).filter(pl.col("step") % 10 == 0)
    printed = tuple(
        EtaPoint(index=n, step=step, remain_steps=100 - step, eta_s=9.0, mode="rank0", source="log") for n, step in ((0, 10), (1, 50))
    )
    points = eta_points(steps, NO_PAUSES, spec(steps=None), source="log:seed", printed=printed)
    assert [(point.step, point.eta_s, point.source) for point in points] == [(10, 9.0, "log"), (50, 9.0, "log")]
    assert [point.actual_s for point in points] == [pytest.approx(9.0), pytest.approx(5.0)]


def test_points_beyond_a_few_hundred_are_thinned() -> None:
    points = eta_points(factory.steps_of([100.0] * 1200), NO_PAUSES, spec(steps=1200, log_every=1))
    assert 300 < len(points) <= MAX_POINTS


def test_a_measured_run_has_points_quality_and_the_seeds_columns() -> None:
    run = factory.spec(ranks=2, steps=400, timing=TimingSpec(log_every=50, eta_mode="global_max"))
    tables = factory.tables(*(factory.steps_of(times(400, rank), rank=rank) for rank in range(2)))
    found = measure_run(factory.attempt(run), tables)
    assert {point.mode for point in found.eta_points} == {"rank0", "global_max"}
    assert found.eta_quality is not None
    assert found.eta_quality.points == 7
    assert found.eta_quality.median_fraction < 0.01
    assert (found.stage1["eta_points"], found.stage1["eta_mode_effective"], found.stage1["last_eta_step"]) == (7, "global_max", 350)


@settings(deadline=None)
@given(data=st.data(), marks=st.integers(17, 90), spread=st.sampled_from([0.0, 0.02, 0.3]), read_every=st.sampled_from([0, 5, 10]))
def test_blocks_cut_all_at_once_are_those_cut_one_by_one(data: st.DataObject, marks: int, spread: float, read_every: int) -> None:
    chance = random.Random(data.draw(st.integers(0, 10_000)))
    gap = data.draw(st.integers(1, 5))
    step = np.cumsum([0, *(chance.randint(1, gap) for _ in range(marks))])
    took_s = [float(n) * 0.1 * max(1 + chance.gauss(0, spread), 0.1) * (8 if chance.random() < 0.03 else 1) for n in np.diff(step)]
    for place in range(read_every, marks - 2, read_every or marks):
        took_s[place : place + 3] = [took_s[place] + 0.18, took_s[place + 1] * 0.1, took_s[place + 2] * 0.1]
    paused_s = np.cumsum([0.0, *(chance.choice([0.0] * 9 + [2.0]) for _ in range(marks))])
    end_s = np.cumsum([0.0, *took_s]) + paused_s
    # What is left of them after the sums: where steps are exactly alike, rounding decides which are long.
    took_s = np.maximum(np.diff(end_s) - np.diff(paused_s), 0.0).tolist()
    borders = [0, *sorted(chance.sample(range(1, marks), 3)), marks]
    blocks = cut_blocks(step, end_s, paused_s, np.array(borders[:-1]), np.array(borders[1:]))
    held = 0
    for found, start, end in zip(blocks, borders, borders[1:], strict=False):
        begin = start - held
        one = split_marks(list(zip(np.diff(step)[begin:end].tolist(), took_s[begin:end], strict=True)), int(step[begin]))
        held = one.held
        assert (found.one.held, found.seen, found.end) == (held, step[end], step[end - held])
        assert (found.one.block is None) == (one.block is None)
        assert found.one.block is None or found.one.block == pytest.approx(one.block, rel=1e-6, abs=1e-12)
        assert [one[:2] for one in found.one.long] == [one[:2] for one in one.long]
    assert sum(length_s for found in blocks for _, length_s, _ in found.pauses) == pytest.approx(paused_s[-1])


@pytest.mark.parametrize("read_at", [(0,), (19,), (3, 13), (18,)])
def test_a_replay_gives_the_live_estimates_where_values_are_read_back(read_at: tuple[int, ...]) -> None:
    times_ms = times(400)
    for step in (step for step in range(20, 396) if step % 20 in read_at):
        times_ms[step : step + 4] = [times_ms[step] + 210.0, *(value - 70 for value in times_ms[step + 1 : step + 4])]
    table = factory.steps_of(times_ms)
    estimator, live = EtaEstimator(400, 10), {}
    for step, end_s in zip(table["step"], table["m"], strict=True):
        estimator.add(step, end_s)
        live[step] = estimator.estimate()
    for point in eta_points(table, NO_PAUSES, spec(log_every=20)):
        estimate = live[point.step]
        assert estimate is not None
        assert point.eta_s == pytest.approx(estimate.eta_s, abs=0.02 * 40)
        assert point.eta_s == pytest.approx(point.actual_s, abs=0.02 * 40)


def test_a_block_of_two_marks_knows_its_noise() -> None:
    end_s = np.array([0.0, 1.0, 2.0, 3.0, 4.2])
    _, second = cut_blocks(np.arange(5), end_s, np.zeros(5), np.array([0, 2]), np.array([2, 4]))
    assert second.one.block is not None and second.one.block.mean_s == pytest.approx(1.1)
    assert second.one.block.variance == pytest.approx(0.2**2 / 2 / MEDIAN_SQUARE)
