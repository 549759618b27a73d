"""Throughput, step time and efficiency at each number of GPUs."""

from __future__ import annotations

import math

import pytest

from seatrial.analyse.scaling_points import by_size, rate_of, scaling_points
from seatrial.records.comparison import Side, SideRun
from seatrial.records.measure import Estimate
from tests.unit.analyse.made_sides import side


def sized(name: str, gpus: int, rates: list[float], *, steps_per_s: float = 10.0, **changes: object) -> Side:
    runs = tuple(
        SideRun(run=f"{name}_r{at}", repeat=at, started_t=100.0 * at, figures={"samples_per_s": rate, "steps_per_s": steps_per_s})
        for at, rate in enumerate(rates, start=1)
    )
    return side(name, (), **{"world_size": gpus, "runs": runs, "campaign": f"/out/{name}", **changes})


@pytest.mark.parametrize(
    ("figures", "rate"),
    [
        ({"samples_per_s": 8.0, "steps_per_s": 1.0}, 8.0),
        ({"samples_per_s": 8.0}, None),
        ({"steps_per_s": 1.0}, None),
        ({"samples_per_s": 0.0, "steps_per_s": 1.0}, None),
        ({"samples_per_s": 8.0, "steps_per_s": 0.0}, None),
        ({"samples_per_s": math.inf, "steps_per_s": 1.0}, None),
    ],
)
def test_a_rate_counts_only_with_its_steps(figures: dict[str, float], rate: float | None) -> None:
    assert rate_of(SideRun(run="a_r1", repeat=1, started_t=0.0, figures=figures), "samples_per_s") == rate


def test_sizes_are_in_order_and_sides_of_one_are_pooled() -> None:
    found = by_size(
        [sized("c", 2, [40.0, 60.0]), sized("a", 1, [20.0]), sized("b", 1, [30.0]), sized("n", 2, [50.0], nodes=2)], "samples_per_s"
    )
    assert [(each.gpus, each.nodes, each.rates) for each in found] == [(1, 1, (20.0, 30.0)), (2, 1, (40.0, 60.0)), (2, 2, (50.0,))]
    assert [each.work for each in found] == [2.5, 2.5, 2.5]
    assert found[0].steps_ms == (100.0, 100.0)


def test_sides_that_tell_nothing_are_left_out() -> None:
    silent = side("s", (), runs=(SideRun(run="s_r1", repeat=1, started_t=0.0, figures={}),))
    assert by_size([silent, sized("z", 0, [1.0])], "samples_per_s") == []


def test_steps_alone_are_taken_for_the_same_work_of_each_gpu() -> None:
    (found,) = by_size([sized("a", 4, [1.0], steps_per_s=10.0)], "steps_per_s")
    assert found.rates == (40.0,) and found.work == 1.0


def test_efficiency_is_per_gpu_against_the_smallest_number() -> None:
    first, second = scaling_points(by_size([sized("a", 1, [100.0, 100.0]), sized("b", 4, [300.0, 300.0])], "samples_per_s"))
    assert first.efficiency == Estimate(mean=1.0, n=2) and (first.value.mean, first.per_gpu.mean) == (pytest.approx(100.0),) * 2
    assert second.efficiency.mean == pytest.approx(0.75) and second.value.mean == pytest.approx(300.0)
    assert (second.per_gpu.mean, second.step_ms, second.runs, second.gpus) == (pytest.approx(75.0), pytest.approx(100.0), 2, 4)


def test_names_of_pooled_sides_are_told_once() -> None:
    (found,) = scaling_points(by_size([sized("a", 1, [1.0]), sized("b", 1, [1.0]), sized("a", 1, [1.0])], "samples_per_s"))
    assert (found.group, found.source, found.runs) == ("a + b", "out", 3)


def test_runs_made_in_rounds_are_paired_so_that_what_a_round_did_falls_out() -> None:
    one = side("a", [100.0, 50.0, 200.0], campaign="/out")
    two = side("b", [160.0, 80.0, 320.0], campaign="/out", offset_s=50.0, world_size=2)
    _, paired = scaling_points(by_size([one, two], "samples_per_s"))
    assert paired.efficiency.mean == pytest.approx(0.8) and paired.efficiency.low == pytest.approx(0.8)
    _, apart = scaling_points(by_size([one, side("b", [160.0, 80.0, 320.0], campaign="/other", world_size=2)], "samples_per_s"))
    assert apart.efficiency.mean == pytest.approx(0.8) and (apart.efficiency.low or 0) < 0.5


@pytest.mark.parametrize(("rate", "weak"), [(400.0, True), (100.0, False), (430.0, True), (150.0, False), (170.0, True)])
def test_weak_where_the_work_of_one_gpu_stays(rate: float, weak: bool) -> None:
    points = scaling_points(by_size([sized("a", 1, [100.0]), sized("b", 4, [rate])], "samples_per_s"))
    assert points[1].weak is weak and points[0].weak
