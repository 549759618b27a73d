"""Families, points, fit, projections and cautions of scaling."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from seatrial.analyse.scaling import (
    Fit,
    SizedRuns,
    by_size,
    rate_of,
    scaling,
    scaling_cautions,
    scaling_families,
    worst_family,
)
from seatrial.core.errors import RefusedError
from seatrial.records.comparison import ComparedGroup, ComparedRun, ScalingPoint
from seatrial.records.measure import EffectiveSetting, Estimate
from tests.unit.analyse.factory import assert_golden
from tests.unit.analyse.factory import side as side_of


def side(
    gpus: int, *, repeats: int = 3, step_ms: float | None = None, batch: float | None = None, rate: str = "samples_per_s", **changes: Any
) -> ComparedGroup:
    """`batch` is that of all GPUs together: 16 a GPU by default."""
    time_ms = step_ms or 100.0 + 30.0 * (gpus - 1) / gpus + 4.0 * float(np.log2(gpus))
    runs = []
    for repeat in range(1, repeats + 1):
        per_s = 1000 / (time_ms * (1 + 0.004 * (repeat - 2)))
        figures = {"steps_per_s": per_s, **({rate: per_s * (batch or 16.0 * gpus)} if rate != "steps_per_s" else {})}
        runs.append(ComparedRun(run=f"n{gpus}_r{repeat}", repeat=repeat, started_t=0.0, figures=figures))
    values: dict[str, Any] = {"name": f"n{gpus}", "group": f"n{gpus}", "source": f"out{gpus}x", "world_size": gpus, "runs": tuple(runs)}
    values["machine"] = {"gpu_name": "H100"}
    return ComparedGroup(**{**values, **changes})


def test_points_go_by_gpus_with_total_per_gpu_and_efficiency() -> None:
    found = scaling([side(4), side(1), side(2)])
    assert (found.metric, found.unit) == ("samples_per_s", "samples/s")
    assert [point.gpus for point in found.points] == [1, 2, 4]
    assert [point.value.mean for point in found.points] == pytest.approx([160.0, 268.9, 490.4], rel=1e-3)
    assert found.points[2].per_gpu.mean == pytest.approx(122.5, rel=1e-3)
    first, _, last = (point.efficiency for point in found.points)
    assert (first.mean, first.low, first.n) == (1.0, None, 3)
    assert last.mean == pytest.approx(0.7656, rel=1e-3)
    assert last.low is not None and last.high is not None and last.low < last.mean < last.high
    assert [point.runs for point in found.points] == [3, 3, 3] and found.points[0].step_ms == pytest.approx(100.0, rel=1e-3)
    assert all(point.weak for point in found.points)


def test_the_fit_projects_to_the_next_powers_of_two_and_names_what_bounds_it() -> None:
    found = scaling([side(1), side(2), side(4)])
    assert found.compute_ms == pytest.approx(100.0, rel=0.01) and found.latency_ms == pytest.approx(4.0, rel=0.1)
    assert [each.gpus for each in found.projections] == [8, 16, 32]
    for each in found.projections:
        true = 16.0 * each.gpus * 1000 / (100.0 + 30.0 * (each.gpus - 1) / each.gpus + 4.0 * float(np.log2(each.gpus)))
        assert each.low <= true <= each.high and each.bound_by == "compute"
    assert found.projections[-1].efficiency == pytest.approx(0.67, abs=0.02)


def test_other_numbers_of_gpus_can_be_chosen() -> None:
    assert [each.gpus for each in scaling([side(3), side(6)], gpus=[12, 96]).projections] == [12, 96]
    assert [each.gpus for each in scaling([side(3), side(6)]).projections] == [8, 16, 32]


def test_the_same_work_by_more_gpus_is_strong_scaling() -> None:
    sides = [side(gpus, step_ms=100.0 / gpus + 10.0 * (gpus - 1) / gpus, batch=128.0) for gpus in (1, 2, 4, 8)]
    found = scaling(sides)
    assert [point.weak for point in found.points] == [True, False, False, False]
    assert found.compute_ms == pytest.approx(100.0, rel=0.01) and found.bandwidth_ms == pytest.approx(10.0, rel=0.05)
    assert found.projections[-1].gpus == 64 and found.projections[-1].bound_by == "bandwidth"


def test_tokens_are_taken_where_all_have_them_and_not_all_have_samples() -> None:
    found = scaling([side(1, rate="tokens_per_s"), side(2, rate="tokens_per_s"), side(4)])
    assert found.metric == "tokens_per_s" and [point.gpus for point in found.points] == [1, 2]


def test_machines_without_gpus_have_ranks() -> None:
    found = scaling([side(gpus, repeats=1, rate="steps_per_s", machine={"gpu_name": "none", "host": "a"}) for gpus in (1, 2)])
    assert (found.worker, found.unit) == ("rank", "rank steps/s")
    assert "GPU" not in " ".join((found.reason, *found.cautions))


def ranks_and_step_ms() -> list[ComparedGroup]:
    """Axes place.ranks × step_ms: the slow configuration scales well, the fast one a little worse."""
    times = {("10", 1): 10.0, ("10", 2): 10.2, ("40", 1): 40.0, ("40", 2): 40.4}
    return [
        side(
            ranks, step_ms=time_ms, name=f"n{ranks}_{step}", group=f"n{ranks}_{step}", settings={"place.ranks": str(ranks), "step_ms": step}
        )
        for (step, ranks), time_ms in times.items()
    ]


def test_each_configuration_has_its_own_efficiency() -> None:
    found = scaling_families(ranks_and_step_ms())
    assert [one.family for one in found] == ["step_ms=10", "step_ms=40"]
    assert [one.points[-1].efficiency.mean for one in found] == pytest.approx([10 / 10.2, 40 / 40.4], rel=1e-3)
    assert [len(one.points) for one in found] == [2, 2]


def test_a_family_of_one_number_is_a_caution_of_the_worst() -> None:
    worst = worst_family(scaling_families(ranks_and_step_ms()[:3]))
    assert worst is not None and worst.family == "step_ms=10"
    assert any("scaling is unknown" in text and "step_ms=40" in text for text in worst.cautions)
    assert worst_family([]) is None
    alone = worst_family(scaling_families([side(2)]))
    assert alone is not None and not alone.is_measured


def test_campaigns_of_several_sizes_are_one_family_by_equal_settings() -> None:
    sides = [side(gpus, campaign=f"/out{gpus}x", settings={"mb": "8", "env.CUDA_VISIBLE_DEVICES": "0,1"[:gpus]}) for gpus in (1, 2, 4)]
    (found,) = scaling_families(sides)
    assert [point.gpus for point in found.points] == [1, 2, 4] and found.family == "" and not found.cautions


def test_one_side_of_each_number_is_a_family_whatever_else_differs_with_a_note() -> None:
    """Strong scaling by hand: the batch of one GPU halves with every doubling."""
    (found,) = scaling_families([side(gpus, batch=16.0, settings={"mb": str(16 // gpus)}) for gpus in (1, 2, 4)])
    assert [point.gpus for point in found.points] == [1, 2, 4]
    assert any("differ in their settings too (mb 16 / 4 / 8)" in text for text in found.cautions)


def test_different_machines_are_refused_unless_allowed() -> None:
    sides = [side(1, machine={"gpu_name": "V100", "host": "a"}), side(2, machine={"gpu_name": "H100", "host": "b"})]
    with pytest.raises(RefusedError, match=r"different machines: gpu_name \(V100 → H100\).*--across"):
        scaling_families(sides)
    (found,) = scaling_families(sides, across=True)
    assert any("machines" in text for text in found.cautions)
    alike = [dataclasses.replace(one, machine={**one.machine, "gpu_name": "H100"}) for one in sides]
    assert len(scaling_families(alike)) == 1


def sized(name: str, gpus: int, rates: list[float], *, steps_per_s: float = 10.0, **changes: object) -> ComparedGroup:
    runs = tuple(
        ComparedRun(run=f"{name}_r{at}", repeat=at, started_t=100.0 * at, figures={"samples_per_s": rate, "steps_per_s": steps_per_s})
        for at, rate in enumerate(rates, start=1)
    )
    return side_of(name, (), **{"world_size": gpus, "runs": runs, "campaign": f"/out/{name}", **changes})


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
    assert rate_of(ComparedRun(run="a_r1", repeat=1, started_t=0.0, figures=figures), "samples_per_s") == rate


def test_sizes_are_in_order_and_sides_of_one_are_pooled() -> None:
    found = by_size(
        [sized("c", 2, [40.0, 60.0]), sized("a", 1, [20.0]), sized("b", 1, [30.0]), sized("n", 2, [50.0], nodes=2)], "samples_per_s"
    )
    assert [(each.gpus, each.nodes, each.rates) for each in found] == [(1, 1, (20.0, 30.0)), (2, 1, (40.0, 60.0)), (2, 2, (50.0,))]
    assert [each.work for each in found] == [2.5, 2.5, 2.5]
    assert found[0].steps_ms == (100.0, 100.0)


def test_sides_without_figures_are_left_out() -> None:
    silent = side_of("s", (), runs=(ComparedRun(run="s_r1", repeat=1, started_t=0.0, figures={}),))
    assert by_size([silent, sized("z", 0, [1.0])], "samples_per_s") == []


def test_steps_alone_are_taken_for_the_same_work_of_each_gpu() -> None:
    (found,) = by_size([sized("a", 4, [1.0], steps_per_s=10.0)], "steps_per_s")
    assert found.rates == (40.0,) and found.work == 1.0


def test_efficiency_is_per_gpu_against_the_smallest_number() -> None:
    first, second = scaling([sized("a", 1, [100.0, 100.0]), sized("b", 4, [300.0, 300.0])]).points
    assert first.efficiency == Estimate(mean=1.0, n=2) and (first.value.mean, first.per_gpu.mean) == (pytest.approx(100.0),) * 2
    assert second.efficiency.mean == pytest.approx(0.75) and second.value.mean == pytest.approx(300.0)
    assert (second.per_gpu.mean, second.step_ms, second.runs, second.gpus) == (pytest.approx(75.0), pytest.approx(100.0), 2, 4)


def test_groups_of_one_number_are_pooled_and_have_no_fit() -> None:
    found = scaling([sized("a", 1, [1.0]), sized("b", 1, [1.0]), sized("a", 1, [1.0])])
    (point,) = found.points
    assert (point.group, point.source, point.runs, point.efficiency) == ("a + b", "out", 3, Estimate(mean=1.0, n=3))
    assert (found.compute_ms, found.projections) == (None, ())


def test_runs_made_in_rounds_are_paired_so_that_what_a_round_did_falls_out() -> None:
    one = side_of("a", [100.0, 50.0, 200.0], campaign="/out")
    two = side_of("b", [160.0, 80.0, 320.0], campaign="/out", offset_s=50.0, world_size=2)
    _, paired = scaling([one, two]).points
    assert paired.efficiency.mean == pytest.approx(0.8) and paired.efficiency.low == pytest.approx(0.8)
    _, apart = scaling([one, side_of("b", [160.0, 80.0, 320.0], campaign="/other", world_size=2)]).points
    assert apart.efficiency.mean == pytest.approx(0.8) and (apart.efficiency.low or 0) < 0.5


@pytest.mark.parametrize(("rate", "weak"), [(400.0, True), (100.0, False), (430.0, True), (150.0, False), (170.0, True)])
def test_weak_where_the_work_of_one_gpu_stays(rate: float, weak: bool) -> None:
    points = scaling([sized("a", 1, [100.0]), sized("b", 4, [rate])]).points
    assert points[1].weak is weak and points[0].weak


def test_the_total_is_compared_with_that_of_the_smallest_number_though_it_is_not_one() -> None:
    assert not scaling([sized("a", 2, [200.0]), sized("b", 8, [200.0])]).points[1].weak


COMPUTE, BANDWIDTH, LATENCY = 100.0, 30.0, 4.0


def truth(gpus: int, work: float = 1.0) -> float:
    return COMPUTE * work + BANDWIDTH * (gpus - 1) / gpus + LATENCY * float(np.log2(gpus))


def timed(times_ms: dict[int, list[float]]) -> list[SizedRuns]:
    """By number of GPUs, the step times of its runs; each GPU does the same work."""
    return [
        SizedRuns(groups=(side_of("g", (), world_size=gpus),), metric="samples_per_s", rates=(), steps_ms=tuple(times), work=1.0)
        for gpus, times in times_ms.items()
    ]


def simulated(*sizes: int, repeats: int = 3, noise: float = 0.0, seed: int = 0) -> list[SizedRuns]:
    chance = np.random.default_rng(seed)
    return timed({gpus: [truth(gpus) * float(np.exp(chance.normal(0, noise))) for _ in range(repeats)] for gpus in sizes})


def test_the_parts_are_found_again() -> None:
    assert Fit(simulated(1, 2, 4, 8)).parts.tolist() == pytest.approx([COMPUTE, BANDWIDTH, LATENCY])


def test_no_part_is_below_zero_where_more_gpus_are_quicker_than_they_can_be() -> None:
    fit = Fit(timed({gpus: [100.0 - gpus] * 2 for gpus in (1, 2, 4, 8)}))
    assert (fit.parts >= 0).all()


def test_the_interval_holds_the_truth_about_as_often_as_claimed() -> None:
    held = 0
    for seed in range(100):
        found = Fit(simulated(1, 2, 4, 8, noise=0.01, seed=seed)).at(32, 1.0)
        assert found is not None
        held += found.low_ms <= truth(32) <= found.high_ms
    assert held >= 90


def test_of_two_sizes_the_interval_holds_bandwidth_alone_and_latency_alone() -> None:
    fit = Fit(simulated(2, 4, noise=0.001))
    assert fit.parts[2] == 0.0
    found = fit.at(32, 1.0)
    assert found is not None and found.low_ms < truth(32) < found.high_ms
    assert Fit(simulated(1, 2, repeats=1)).at(8, 1.0) is None, "neither repeats nor a third size"
    assert Fit(simulated(1, 2, 4, 8, 16, repeats=1, noise=0.01)).at(32, 1.0) is not None
    assert found.high_ms / found.low_ms > 1.1


def test_what_is_left_of_a_bad_fit_counts_as_noise() -> None:
    noise = Fit(timed({1: [100.0] * 3, 2: [160.0] * 3, 4: [110.0] * 3, 8: [200.0] * 3})).noise
    assert noise is not None and noise[0] > 0.1


def test_the_largest_part_and_what_grows_are_reported() -> None:
    fit = Fit(simulated(1, 2, 4, 8, noise=0.001))
    found = fit.at(64, 1.0)
    assert found is not None and found.largest == "compute"
    assert fit.growth_ms(8, 64)[1] > fit.growth_ms(8, 64)[0] > 0
    small = fit.at(1024, 0.01)
    assert small is not None and small.largest == "latency"


def test_repeats_scatter_about_the_mean_of_their_own_side() -> None:
    """Two sizes far apart, the runs of each equal to the last digit: there is no noise of repeats."""
    found = Fit(timed({1: [100.0] * 2, 2: [200.0] * 3})).noise
    assert found is not None and found[0] == pytest.approx(0.0, abs=1e-12) and found[1] == 3


def point(gpus: int, *, nodes: int = 1, runs: int = 3, weak: bool = True) -> ScalingPoint:
    one = Estimate(mean=1.0, n=runs)
    return ScalingPoint(
        gpus=gpus, nodes=nodes, group="g", source="out", value=one, per_gpu=one, efficiency=one, step_ms=1.0, runs=runs, weak=weak
    )


def sides(*changes: dict[str, Any]) -> list[ComparedGroup]:
    """Sides on 1, 2, … GPUs, of hosts that nothing is known of."""
    return [side_of(f"g{at}", [1.0, 1.1], **{"world_size": at, "machine": {}, **each}) for at, each in enumerate(changes, start=1)]


def cautions(
    of: list[ComparedGroup], *points: ScalingPoint, metric: str = "samples_per_s", having: list[str] | None = None
) -> tuple[str, ...]:
    names = [one.name for one in of] if having is None else having
    return scaling_cautions(of, points or (point(1), point(2)), having=names, metric=metric, worker="GPU")


def test_what_is_no_caution() -> None:
    here = {"machine": {"host": "node-1"}}
    assert cautions(sides({}, {})) == ()
    assert cautions(sides({"code": {"commit": "a"}}, {})) == (), "a fact that one group lacks is no difference"
    assert cautions(sides({}, {}, {}), point(1, weak=False), point(2), point(4)) == (), "the smallest is what the others are compared with"
    assert cautions(sides({"nodes": 1}, {"world_size": 1, "nodes": 2})) == ()
    assert cautions(sides(here, here), point(2), point(2)) == (), "of one number nothing is projected"
    assert cautions(sides(here, {"machine": {"host": "node-2"}})) == () == cautions(sides({"machine": {"host": ""}}, {}))


def test_sentences() -> None:
    """Every sentence on scaling, whole."""
    here = {"machine": {"host": "node-1"}}
    many = [{"code": {f"p{at}": value for at in range(5)}} for value in "12"]
    incomplete = sides(
        {"pending": ("g1_r3", "g1_r4")}, {"run": {"steady": False}}, {"failed_runs": 1, "infrastructure_failures": ("g3_r9 (io_error)",)}
    )
    amps = [EffectiveSetting(name="amp", requested="on", effective=used) for used in ("on", "off")]
    cases = {
        "machines": cautions(sides({"machine": {"gpu_name": "A"}}, {"machine": {"gpu_name": "B"}})),
        "settings": cautions(sides({"settings": {"lr": "1"}}, {"settings": {"lr": "2"}})),
        "code": cautions(sides(*many)),
        "effective": cautions(sides(*({"effective_settings": (amp,)} for amp in amps))),
        "debug": cautions(sides({"debug": ("NCCL_DEBUG=INFO",)}, {})),
        "strong": cautions(sides({}, {}, {}), point(1), point(2, weak=False), point(4, weak=False)),
        "mixed": cautions(sides({}, {}, {}), point(1), point(2), point(4, weak=False)),
        "steps": cautions(sides({}, {}), metric="steps_per_s"),
        "pooled": cautions(sides({}, {"world_size": 1})),
        "pooled at two": cautions(sides({}, {}, {"world_size": 2})),
        "nodes": cautions(sides({}, {}), point(1), point(2, nodes=2)),
        "one node": cautions(sides(here, here)),
        "single": cautions(sides({}, {}), point(1, runs=1), point(2)),
        "singles": cautions(sides({}, {}), point(2, runs=1), point(4, runs=1)),
        "incomplete": cautions(incomplete, having=["g1", "g2"]),
    }
    worst = [worst_family(scaling_families(ranks_and_step_ms()[:count])) for count in (3, 4)]
    fits = [
        scaling([side(1), side(2), side(4)]),
        scaling([side(2), side(4)]),
        scaling([side(1, step_ms=100.0), side(2, step_ms=100.0)]),
        scaling([side(gpus, step_ms=100.0 / gpus + 10.0 * (gpus - 1) / gpus, batch=128.0) for gpus in (1, 2, 4, 8)]),
        scaling([side(1)]),
        scaling([side(1, repeats=1), side(2, repeats=1)]),
        scaling([]),
        scaling([side(1)], "wall_p50_ms"),
        *(one for one in worst if one),
    ]
    lines = [f"{name}: {' | '.join(found)}" for name, found in cases.items()]
    assert_golden("scaling", [*lines, *(" | ".join((found.reason, *found.cautions)) for found in fits)])
