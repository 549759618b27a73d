"""What groups are ranked by: one figure for all, and a word where some lack it."""

from __future__ import annotations

import pytest

from seatrial.analyse.rank_metric import METRICS, Metric, choose_metric
from seatrial.errors import UsageError
from seatrial.records.measure import Estimate, GroupSummary
from tests.unit.analyse.factory import group


def telling(name: str, *figures: str, **changes: object) -> GroupSummary:
    return group(name, figures={figure: Estimate(mean=1.0, n=3) for figure in figures}, **changes)


def test_a_figure_that_is_asked_for_is_taken_whoever_has_it() -> None:
    assert choose_metric([], "startup_s") == (METRICS["startup_s"], [])
    with pytest.raises(UsageError, match="rank_by: 'samples_per_sec' is not a figure to rank by; did you mean 'samples_per_s'"):
        choose_metric([], "samples_per_sec")


@pytest.mark.parametrize(
    ("figures", "name"),
    [
        ([("samples_per_s", "steps_per_s")] * 2, "samples_per_s"),
        ([("tokens_per_s", "steps_per_s")] * 2, "tokens_per_s"),
        ([("steps_per_s",)] * 2, "steps_per_s"),
        ([()] * 2, "duration_s"),
        ([("samples_per_s", "steps_per_s"), ("steps_per_s",)], "steps_per_s"),
        ([("samples_per_s",), ("samples_per_s",), ()], "samples_per_s"),
    ],
)
def test_throughput_is_the_first_figure_that_more_than_half_have(figures: list[tuple[str, ...]], name: str) -> None:
    groups = [telling(f"g{at}", *told) for at, told in enumerate(figures)]
    assert choose_metric(groups, "throughput")[0].name == name


def test_groups_beside_the_lane_and_without_runs_do_not_decide() -> None:
    beside = [telling(f"b{at}", "steps_per_s", lane=False) for at in range(3)]
    empty = [telling(f"e{at}", runs=0) for at in range(3)]
    assert choose_metric([telling("a", "samples_per_s"), *beside, *empty], "throughput")[0].name == "samples_per_s"
    assert choose_metric([*beside, *empty], "throughput") == (METRICS["steps_per_s"], [])


def test_who_lacks_the_figure_cannot_win_and_is_named() -> None:
    groups = [telling("a", "samples_per_s"), telling("b", "samples_per_s"), telling("c", "steps_per_s")]
    _, (caution,) = choose_metric(groups, "throughput")
    assert caution.kind == "mixed_figures" and caution.numbers == {"groups": 3, "lacking": 1}
    assert caution.text.startswith("samples_per_s is not known of every run of c: they cannot win.")


def test_a_better_figure_that_most_lack_is_told() -> None:
    groups = [telling("a", "samples_per_s", "steps_per_s"), telling("b", "steps_per_s"), telling("c", "steps_per_s")]
    metric, (caution,) = choose_metric(groups, "throughput")
    assert metric.name == "steps_per_s"
    assert caution.text.startswith("samples_per_s is not known of every run of b, c: so steps_per_s is what all are ranked by.")
    assert choose_metric(groups[1:], "throughput")[1] == []


@pytest.mark.parametrize(("cell", "value"), [(1.5, 1.5), (2, 2.0), (0.0, None), (-1.0, None), (True, None), ("mixed", None), (None, None)])
def test_a_seeds_column_is_a_figure_without_an_interval(cell: object, value: float | None) -> None:
    metric = Metric(name="stability", unit="score", higher_is_better=False, seed_column="stability_score")
    found = metric.of(group("a", seed={"stability_score": cell}))
    assert (found and (found.mean, found.n, found.low)) == (value and (value, 1, None))


def test_a_figure_of_the_group_as_it_is() -> None:
    assert METRICS["samples_per_s"].of(telling("a", "samples_per_s")) == Estimate(mean=1.0, n=3)
    assert METRICS["samples_per_s"].of(telling("a")) is None
