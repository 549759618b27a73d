"""Throughput over GPUs: points, efficiency, weak and strong, projections, cautions, refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from seatrial.analyse.scaling import scaling
from seatrial.records.comparison import Side, SideRun


def side(
    gpus: int, *, repeats: int = 3, step_ms: float | None = None, batch: float | None = None, rate: str = "samples_per_s", **changes: Any
) -> Side:
    """`batch` is that of all GPUs together: 16 a GPU unless told otherwise."""
    time_ms = step_ms or 100.0 + 30.0 * (gpus - 1) / gpus + 4.0 * float(np.log2(gpus))
    runs = []
    for repeat in range(1, repeats + 1):
        per_s = 1000 / (time_ms * (1 + 0.004 * (repeat - 2)))
        figures = {"steps_per_s": per_s, **({rate: per_s * (batch or 16.0 * gpus)} if rate != "steps_per_s" else {})}
        runs.append(SideRun(run=f"n{gpus}_r{repeat}", repeat=repeat, started_t=0.0, figures=figures))
    values: dict[str, Any] = {"name": f"n{gpus}", "group": f"n{gpus}", "source": f"out{gpus}x", "world_size": gpus, "runs": tuple(runs)}
    values["machine"] = {"gpu_name": "H100"}
    return Side(**{**values, **changes})


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


def test_the_fit_projects_to_the_next_powers_of_two_and_says_what_bounds_it() -> None:
    found = scaling([side(1), side(2), side(4)])
    assert found.compute_ms == pytest.approx(100.0, rel=0.01) and found.latency_ms == pytest.approx(4.0, rel=0.1)
    assert [each.gpus for each in found.projections] == [8, 16, 32]
    for each in found.projections:
        true = 16.0 * each.gpus * 1000 / (100.0 + 30.0 * (each.gpus - 1) / each.gpus + 4.0 * float(np.log2(each.gpus)))
        assert each.low <= true <= each.high and each.bound_by == "compute"
    assert found.projections[-1].efficiency == pytest.approx(0.67, abs=0.02)
    assert "a step on 32 is bound by compute" in found.reason and "latency is what grows most" in found.reason


def test_other_numbers_of_gpus_can_be_asked_for() -> None:
    assert [each.gpus for each in scaling([side(3), side(6)], gpus=[12, 96]).projections] == [12, 96]
    assert [each.gpus for each in scaling([side(3), side(6)]).projections] == [8, 16, 32]


def test_the_same_work_by_more_gpus_is_strong_scaling() -> None:
    sides = [side(gpus, step_ms=100.0 / gpus + 10.0 * (gpus - 1) / gpus, batch=128.0) for gpus in (1, 2, 4, 8)]
    found = scaling(sides)
    assert [point.weak for point in found.points] == [True, False, False, False]
    assert found.compute_ms == pytest.approx(100.0, rel=0.01) and found.bandwidth_ms == pytest.approx(10.0, rel=0.05)
    assert found.projections[-1].gpus == 64 and found.projections[-1].bound_by == "bandwidth"
    assert any("strong scaling" in caution for caution in found.cautions)


def test_steps_alone_take_each_gpus_work_to_be_the_same() -> None:
    found = scaling([side(gpus, rate="steps_per_s") for gpus in (1, 2)])
    assert found.unit == "GPU steps/s" and found.points[1].value.mean == pytest.approx(2 * 1000 / 119, rel=1e-2)
    assert any("neither samples nor tokens" in caution for caution in found.cautions)


def test_tokens_are_taken_where_all_tell_them_and_not_all_tell_samples() -> None:
    found = scaling([side(1, rate="tokens_per_s"), side(2, rate="tokens_per_s"), side(4)])
    assert found.metric == "tokens_per_s" and [point.gpus for point in found.points] == [1, 2]
    assert any("No run of n4 tells tokens_per_s" in caution for caution in found.cautions)


def test_two_sizes_say_what_they_cannot_tell() -> None:
    found = scaling([side(2), side(4)])
    assert found.latency_ms is None and found.bandwidth_ms is not None and "cannot be told by two numbers" in found.reason


def test_one_size_has_points_and_no_fit() -> None:
    found = scaling([side(2), side(2, name="again", group="again", source="out2y")])
    assert len(found.points) == 1 and found.compute_ms is None and found.projections == ()
    assert "All sides ran on 2 GPUs: run one more number of GPUs" in found.reason
    assert found.points[0].efficiency.mean == 1.0 and found.points[0].efficiency.low is None


def test_sides_of_one_number_are_pooled_and_the_smallest_is_its_own_measure() -> None:
    found = scaling([side(1), side(1, name="again", group="again", step_ms=125.0), side(2)])
    assert [(point.gpus, point.runs, point.group) for point in found.points] == [(1, 6, "n1 + again"), (2, 3, "n2")]
    assert found.points[0].efficiency.mean == 1.0
    assert found.points[1].efficiency.mean == pytest.approx(found.points[1].per_gpu.mean / found.points[0].per_gpu.mean)
    assert any(
        "Several sides ran on 1 GPU, and their runs are taken together: n1 (out1x), again (out1x)" in text for text in found.cautions
    )


def test_runs_made_in_rounds_are_pairs_of_the_efficiency() -> None:
    """A machine that is slower in one round is so for both: what is left is their own difference."""

    def drifting(gpus: int, campaign: str) -> Side:
        made = side(gpus, campaign=campaign)
        drift = (1.0, 0.8, 1.1)
        runs = [
            dataclasses.replace(run, started_t=100.0 * run.repeat + gpus, figures={key: by * value for key, value in run.figures.items()})
            for run, by in zip(made.runs, drift, strict=True)
        ]
        return dataclasses.replace(made, runs=tuple(runs))

    paired, apart = (scaling([drifting(1, "/out"), drifting(2, second)]).points[1].efficiency for second in ("/out", "/other"))
    assert paired.mean == pytest.approx(apart.mean) == pytest.approx(100 / 119, rel=1e-2)
    assert paired.high / paired.low < 1.001 and apart.high / apart.low > 1.5


def test_machines_without_gpus_have_ranks() -> None:
    found = scaling([side(gpus, repeats=1, rate="steps_per_s", machine={"gpu_name": "none", "host": "a"}) for gpus in (1, 2)])
    assert (found.worker, found.unit) == ("rank", "rank steps/s")
    assert "GPU" not in " ".join((found.reason, *found.cautions))
    assert "All sides were run from host a: projections beyond one node" in " ".join(found.cautions)


def test_without_repeats_nothing_is_projected() -> None:
    found = scaling([side(1, repeats=1), side(2, repeats=1)])
    assert found.compute_ms is not None and found.projections == () and "run each number twice" in found.reason
    assert any("A single run on 1, 2 GPUs" in caution for caution in found.cautions)


@pytest.mark.parametrize(("sides", "metric", "said"), [([], "throughput", "No run tells"), ([side(1)], "wall_p50_ms", "is no rate")])
def test_what_cannot_be_measured_says_so(sides: list[Side], metric: str, said: str) -> None:
    found = scaling(sides, metric)
    assert found.points == () and said in found.reason


def test_runs_with_impossible_figures_do_not_count() -> None:
    good = side(2)
    bad = [
        dataclasses.replace(run, figures={"samples_per_s": value, "steps_per_s": 1.0})
        for run, value in zip(good.runs, (0.0, float("nan"), -1.0), strict=True)
    ]
    found = scaling([side(1), dataclasses.replace(good, runs=tuple(bad)), side(4)])
    assert [point.gpus for point in found.points] == [1, 4]


def test_cautions_name_what_else_differs() -> None:
    sides = [
        side(1, machine={"gpu_name": "V100", "host": "a"}, failed_runs=1),
        side(2, machine={"gpu_name": "H100", "host": "b"}, debug=("NCCL_DEBUG=INFO",)),
        side(4, nodes=2, code={"commit": "abc"}),
    ]
    said = "\n".join(scaling(sides).cautions)
    assert "gpu_name H100 / V100" in said and "host" not in said.split("):")[0]
    assert "Debug settings were on in n2 (NCCL_DEBUG=INFO)" in said
    assert "ran on 1, 2 nodes" in said and "Failed runs, which are not counted: n1 (1)" in said
    assert "node" not in "\n".join(scaling([side(1), side(2)]).cautions)
    assert "still to be made: n2 (2)" in "\n".join(scaling([side(1), side(2, pending=("n2_r4", "n2_r5"))]).cautions)


def test_two_numbers_between_which_nothing_grows() -> None:
    found = scaling([side(1, step_ms=100.0), side(2, step_ms=100.0)])
    assert "nothing in a step grows with their number" in found.reason and "two numbers" not in found.reason
    assert "cannot be told by two numbers" in scaling([side(1), side(2)]).reason
