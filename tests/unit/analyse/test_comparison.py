"""A candidate against a baseline: relation, refusals, cautions, stage 1's presets."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from seatrial.analyse.comparison import compare_pairs, pair_runs
from seatrial.analyse.groups import debug_levels
from seatrial.core.errors import RefusedError, UsageError
from seatrial.records.comparison import ComparedGroup, Comparison, Relation
from seatrial.records.measure import LastSteps
from tests.unit.analyse.factory import MACHINE, assert_golden, compare, course, elsewhere, side

RATES = [1000.0, 1010.0, 990.0, 1005.0, 996.0]
WANDERING = [1000.0, 1200.0, 900.0, 1100.0, 800.0]


def times(factor: float, rates: list[float] = RATES) -> list[float]:
    """The rates, each a little off the factor."""
    return [rate * factor * (1 + 0.002 * (-1) ** at) for at, rate in enumerate(rates)]


@pytest.mark.parametrize(("factor", "relation"), [(1.05, Relation.FASTER), (0.95, Relation.SLOWER), (1.0, Relation.SAME)])
def test_pairs_show_what_a_wandering_platform_would_hide(factor: float, relation: Relation) -> None:
    found = compare(side("a", WANDERING), side("b", times(factor, WANDERING), offset_s=40))
    assert found.relation is relation
    assert found.method == "paired t on logs, 5 pairs"
    apart = compare(side("a", WANDERING), elsewhere("b", times(factor, WANDERING)))
    assert apart.relation is Relation.AMBIGUOUS
    assert apart.detectable_pct is not None and apart.detectable_pct > 20
    assert apart.method == "Welch on logs, 5 and 5 runs"


@pytest.mark.parametrize("paired", [True, False])
def test_interval_and_chance_are_those_of_the_paired_t_or_of_welch_on_logs(paired: bool) -> None:
    a, b = WANDERING, times(1.02, WANDERING)
    found = compare(side("a", a), (side if paired else elsewhere)("b", b))
    expected = stats.ttest_rel(np.log(b), np.log(a)) if paired else stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
    ends = expected.confidence_interval(0.95)
    assert found.chance == pytest.approx(expected.pvalue)
    assert found.ratio is not None
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(ends.low), math.exp(ends.high)))


def test_less_is_faster_for_times() -> None:
    found = compare(side("a", RATES, metric="wall_p50_ms"), side("b", times(0.9), metric="wall_p50_ms"), metric="wall_p50_ms")
    assert found.relation is Relation.FASTER and not found.higher_is_better
    assert "10.0 % fewer ms a step" in found.reason


@pytest.mark.parametrize(
    ("factor", "relation", "text"),
    [
        (1.001, Relation.SAME, "have the same samples/s, to within 0.6 %"),
        (1.005, Relation.AMBIGUOUS, "within the margin of 0.6 %, but the interval reaches beyond it"),
        (1.0075, Relation.FASTER, "It may still be within the margin of 0.6 %."),
        (1.03, Relation.FASTER, "b has 3.0 % more samples/s than a"),
        (0.97, Relation.SLOWER, "b has 3.0 % fewer samples/s than a"),
    ],
)
def test_a_margin_wants_the_middle_beyond_it(factor: float, relation: Relation, text: str) -> None:
    found = compare(side("a", RATES), side("b", times(factor)), margin_pct=0.6)
    assert found.relation is relation and text in found.reason
    assert ("may still be" in found.reason) == (factor == 1.0075)


def test_one_run_has_no_interval_and_none_is_made_up() -> None:
    found = compare(side("a", RATES), side("b", [5000.0]))
    assert (found.relation, found.ratio, found.chance, found.bootstrap_low) == (Relation.AMBIGUOUS, None, None, None)
    assert "b has one run only" in found.reason
    assert found.value_b is not None and found.value_b.n == 1


def unsteady(made: ComparedGroup, p90_over_p50: float | None, *repeats: int) -> ComparedGroup:
    """The side with runs that found no steady state."""
    spread = {} if p90_over_p50 is None else {"wall_p90_over_p50": p90_over_p50}
    runs = (
        dataclasses.replace(run, steady=False, figures={**run.figures, **spread}) if run.repeat in repeats else run for run in made.runs
    )
    return dataclasses.replace(made, runs=tuple(runs))


def test_failures_of_the_platform_block_until_they_are_run_again() -> None:
    found = compare(side("a", RATES), side("b", times(1.5), infrastructure_failures=("b_r6 (io_error)",)))
    assert (found.relation, found.ratio) == (Relation.AMBIGUOUS, None)
    assert found.blocked == "b_r6 (io_error) failed because of the platform: run it again first"
    assert found.blocked in found.reason


def test_different_machines_are_refused_unless_allowed() -> None:
    a, b = side("a", RATES), elsewhere("b", times(1.1), machine={**MACHINE, "gpu_name": "Other GPU"})
    with pytest.raises(RefusedError, match=r"gpu_name \(Example GPU → Other GPU\).*--across") as refused:
        compare(a, b)
    assert refused.value.exit_code == 2
    found = compare(a, b, across=True)
    assert found.relation is Relation.FASTER and "gpu_name (Example GPU → Other GPU)" in found.cautions[0]


def test_debug_settings_are_never_mixed() -> None:
    a, b = side("a", RATES), side("b", times(1.1), debug=("NCCL_DEBUG=INFO",))
    with pytest.raises(RefusedError, match=r"a has none, b has NCCL_DEBUG=INFO"):
        compare(a, b, across=True)
    both = compare(dataclasses.replace(a, debug=b.debug), b)
    assert any("NCCL_DEBUG=INFO" in caution for caution in both.cautions)


def test_copies_are_the_same_runs() -> None:
    a, b = side("a", RATES), side("b", times(1.1))
    copied = dataclasses.replace(a, name="copy:a", campaign="/copy", source="copy")
    with pytest.raises(RefusedError, match=r"copy:a .*same runs \(a_r1, a_r2, a_r3 and 2 more\)"):
        compare(a, copied)
    with pytest.raises(RefusedError, match=r"have runs in common \(a_r1\)"):
        compare(a, dataclasses.replace(b, runs=(a.runs[0], *b.runs)))


def test_figures_per_gpu_need_the_number_of_ranks() -> None:
    a, b = side("a", RATES), elsewhere("b", times(1.9), world_size=2, ranks_known=False)
    with pytest.raises(RefusedError, match="number of ranks of b is unknown"):
        compare(a, b)


def test_different_numbers_of_ranks_are_compared_by_gpu() -> None:
    a, b = side("a", RATES), elsewhere("b", times(1.9), world_size=2)
    found = compare(a, b, preset="highest_mean")
    assert (found.relation, found.unit, found.metric) == (Relation.SLOWER, "samples/s per GPU", "samples_per_s")
    assert found.ratio is not None and found.ratio.mean == pytest.approx(0.95, abs=0.01)
    assert found.value_b is not None and found.value_b.mean == pytest.approx(950, rel=0.01)
    assert "a wins by its mean" in found.reason
    steps = compare(side("a", RATES, metric="steps_per_s"), elsewhere("b", RATES, metric="steps_per_s", world_size=2))
    assert (steps.relation, steps.ratio) == (Relation.AMBIGUOUS, None) and "the number of ranks (1 → 2) differs" in steps.reason


def test_throughput_is_what_both_have() -> None:
    samples, tokens = side("a", RATES), side("b", RATES, metric="tokens_per_s")
    assert compare(samples, tokens).metric == "steps_per_s"
    with pytest.raises(RefusedError, match=r"samples_per_s, steps_per_s.*tokens_per_s, steps_per_s"):
        compare(samples, tokens, metric="samples_per_s")
    with pytest.raises(UsageError, match="did you mean 'samples_per_s'"):
        compare(samples, tokens, metric="sample_per_s")


@pytest.mark.parametrize(("metric", "what"), [("steps_per_s", "a step"), ("duration_s", "a run")])
def test_steps_of_different_size_show_nothing(metric: str, what: str) -> None:
    sides = [
        side(name, times(factor), metric=metric, settings={"env.BATCH_SIZE": batch})
        for name, factor, batch in (("a", 1, "8"), ("b", 2, "16"))
    ]
    found = compare(*sides, metric=metric)
    assert (found.relation, found.ratio) == (Relation.AMBIGUOUS, None)
    assert f"env.BATCH_SIZE (8 → 16) differs, so {what} does not do the same work" in found.reason
    assert "workload.samples_per_step" in found.reason


def test_steps_with_different_work_show_nothing_and_their_times_are_a_caution() -> None:
    a, b = side("a", RATES), side("b", times(1.5))
    runs = (
        dataclasses.replace(run, figures={**run.figures, "steps_per_s": 50.0 + run.repeat, "wall_p50_ms": 20.0 + run.repeat})
        for run in b.runs
    )
    b = dataclasses.replace(b, runs=tuple(runs))
    assert "a step takes 10 samples in a and 28" in compare(a, b, metric="steps_per_s").reason
    a = dataclasses.replace(a, runs=tuple(dataclasses.replace(run, figures={**run.figures, "wall_p50_ms": 10.0}) for run in a.runs))
    timed = compare(a, b, metric="wall_p50_ms")
    assert timed.ratio is not None and any(
        "ms a step is compared although a step takes 10 samples" in caution for caution in timed.cautions
    )


def test_a_run_without_the_metric_is_left_out() -> None:
    a, b = side("a", RATES), side("b", times(1.1))
    silent = dataclasses.replace(b.runs[2], figures={"steps_per_s": 1.0})
    found = compare(a, dataclasses.replace(b, runs=(*b.runs[:2], silent, *b.runs[3:])))
    assert (found.metric, found.relation) == ("samples_per_s", Relation.FASTER)
    assert found.value_b is not None and found.value_b.n == 4
    assert any("b_r3 has no samples/s and is left out" in caution for caution in found.cautions)
    few = dataclasses.replace(b, runs=(b.runs[0], silent))
    assert compare(a, few).metric == "steps_per_s"


def shifted(made: ComparedGroup, starts_t: list[float]) -> ComparedGroup:
    runs = (dataclasses.replace(run, started_t=t) for run, t in zip(made.runs, starts_t, strict=True))
    return dataclasses.replace(made, runs=tuple(runs))


def test_pairs_are_runs_made_in_rounds_of_one_campaign() -> None:
    a, b = side("a", RATES[:3]), side("b", RATES[:3], offset_s=50)
    assert [(one.run, other.run) for one, other in pair_runs(a, b)] == [("a_r1", "b_r1"), ("a_r2", "b_r2"), ("a_r3", "b_r3")]
    assert pair_runs(a, side("b", RATES[:2])) == []
    assert pair_runs(a, elsewhere("b", RATES[:3])) == []
    assert pair_runs(dataclasses.replace(a, campaign=""), dataclasses.replace(b, campaign="")) == []
    nested = shifted(b, [5000.0, 5100.0, 5200.0])
    assert pair_runs(a, nested) == []
    assert any("in rounds" in caution for caution in compare(a, nested).cautions)
    assert len(pair_runs(shifted(a, [0.0] * 3), shifted(b, [0.0] * 3))) == 3


def test_many_comparisons_widen_intervals_and_agree_with_their_chance() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        groups = [side(f"g{at}", list(1000 * np.exp(random.normal(0.004 * at, 0.01, 5))), offset_s=at) for at in range(6)]
        for one in compare_pairs([(groups[0], other) for other in groups[1:]], margin_pct=0.0):
            assert one.comparisons == 5 and one.chance is not None
            assert (one.relation is not Relation.AMBIGUOUS) == (one.chance <= 0.05)


def test_a_baseline_picked_as_the_best_was_compared_with_all() -> None:
    a, b = side("a", RATES), side("b", times(1.03), offset_s=1)
    once, (picked,) = compare(a, b), compare_pairs([(a, b)], family=10)
    assert once.ratio and picked.ratio and once.ratio.low and picked.ratio.low
    assert picked.ratio.low < once.ratio.low and picked.comparisons == 10
    assert picked.confidence == pytest.approx(0.995) and "99.5 % interval" in picked.reason and "95 %" not in picked.reason
    assert "Holm over 10 comparisons" in picked.method and picked.reason.count("comparisons") == 1


def test_a_figure_that_most_runs_have_is_compared_and_one_that_half_have_is_not() -> None:
    def telling(count: int) -> ComparedGroup:
        made = side("b", RATES[:4])
        bare = tuple(dataclasses.replace(run, figures={"steps_per_s": run.figures["steps_per_s"]}) for run in made.runs[count:])
        return dataclasses.replace(made, runs=(*made.runs[:count], *bare))

    assert compare(side("a", RATES), telling(3)).metric == "samples_per_s"
    assert compare(side("a", RATES), telling(2)).metric == "steps_per_s"


def test_a_rule_is_applied_to_every_one_of_many_and_the_bootstrap_surrounds_the_interval() -> None:
    found = compare_pairs([(side("a", RATES), side(*other)) for other in (("b", times(1.05)), ("c", times(0.95)))], preset="highest_mean")
    assert [one.reason.startswith("By the rule highest_mean: ") for one in found] == [True, True]
    assert all(one.ratio and one.bootstrap_low and one.bootstrap_high for one in found)
    assert all(one.ratio and one.bootstrap_low < one.ratio.mean < one.bootstrap_high for one in found)  # type: ignore[operator]


def test_what_unsteady_steps_vary_by_is_the_square_of_p90_over_p50() -> None:
    """1.2² is 1.44, and the interval is about 0.3 % to either side."""
    assert compare(side("a", RATES), unsteady(side("b", times(1.446)), 1.2, 1)).relation is Relation.FASTER
    assert compare(side("a", RATES), unsteady(side("b", times(1.437)), 1.2, 1)).relation is Relation.AMBIGUOUS
    assert compare(side("a", RATES), unsteady(side("b", times(1 / 1.446)), 1.2, 1)).relation is Relation.SLOWER
    assert compare(side("a", RATES), unsteady(side("b", times(1 / 1.437)), 1.2, 1)).relation is Relation.AMBIGUOUS
    assert compare(side("a", RATES), unsteady(side("b", times(9.0)), math.inf, 1)).relation is Relation.AMBIGUOUS
    assert compare(side("a", RATES), unsteady(side("b", times(1.2)), 1.0, 1)).relation is Relation.AMBIGUOUS, "25 % at least"


def test_a_spread_of_a_clock_s_resolution_is_no_noise() -> None:
    for spread, is_noise in ((1e-11, False), (1e-8, True)):
        rates = [1000.0 * (1 + spread * (-1) ** at) for at in range(4)]
        assert (compare(side("a", [1000.0] * 4), side("b", rates)).ratio is not None) is is_noise


def test_sentences() -> None:
    """Every sentence of a comparison, whole."""
    a, platform = side("a", RATES), {"infrastructure_failures": ("b_r6 (io_error)",)}
    p90 = {"metric": "wall_p90_over_p50"}
    small, large = (
        side(name, times(factor), metric="duration_s", settings={"bs": batch}) for name, factor, batch in (("a", 1, "8"), ("b", 2, "16"))
    )
    silent = dataclasses.replace(side("b", times(1.1)).runs[2], figures={"steps_per_s": 1.0})
    worse = side("a", RATES, run={"loss": course(2.0)}), side("b", times(1.2), run={"loss": course(2.5, seed=1)})
    cases: dict[str, Comparison] = {
        "faster": compare(a, side("b", times(1.031))),
        "half": compare(a, side("b", times(0.5))),
        "double": compare(a, side("b", times(21.0))),
        "near the margin": compare(a, side("b", times(1.0125)), margin_pct=1.2),
        "within the margin": compare(a, side("b", times(1.008))),
        "same": compare(a, side("b", times(1.001))),
        "ambiguous": compare(side("a", WANDERING), elsewhere("b", times(1.05, WANDERING))),
        "hopeless": compare(side("a", [1.0, 1e3, 1e6]), elsewhere("b", [2.0, 1e3, 1e6])),
        "p90/p50": compare(side("a", RATES, **p90), side("b", times(0.9), **p90), metric="wall_p90_over_p50"),  # type: ignore[arg-type]
        "ms": compare(side("a", RATES, metric="wall_p50_ms"), side("b", times(1.1), metric="wall_p50_ms"), metric="wall_p50_ms"),
        "worse loss": compare(*worse),
        "platform": compare(a, side("b", times(1.1), **platform)),  # type: ignore[arg-type]
        "platform twice": compare(side("a", RATES, infrastructure_failures=("a_r6 (io_error)",)), side("b", RATES[::-1], **platform)),  # type: ignore[arg-type]
        "no run": compare(a, side("b", [])),
        "one run": compare(side("a", [1.0]), side("b", [1.0])),
        "steps": compare(small, large, metric="steps_per_s"),
        "duration": compare(small, large, metric="duration_s"),
        "copied": compare(side("a", [12.0, 12.0]), side("b", [11.0, 11.0])),
        "unsteady": compare(a, unsteady(side("b", times(1.3)), 1.2, 1, 2)),
        "unsteady, unknown spread": compare(a, unsteady(side("b", times(5.0)), None, 1)),
        "unsteady and far apart": compare(a, unsteady(side("b", times(5.0)), 1.2, 1)),
        "left out": compare(a, dataclasses.replace(side("b", times(1.1)), runs=(*side("b", times(1.1)).runs[:2], silent))),
        "failed and pending": compare(a, side("b", times(1.1), failed_runs=2, pending=("b_r6",))),
        "elsewhere": compare(a, elsewhere("b", times(1.1), machine={**MACHINE, "gpu_name": "Other GPU"}), across=True),
        "unknown machine": compare(a, elsewhere("b", times(1.1), machine={})),
        "ranks": compare(a, elsewhere("b", times(1.9), world_size=2)),
        "debug": compare(side("a", RATES, debug=("NCCL_DEBUG=INFO",)), side("b", times(1.1), debug=("NCCL_DEBUG=INFO",))),
        "last50": compare(with_last(a, 16.0, 0.5), with_last(side("b", times(1.1)), 15.5, 0.5), preset="last50"),
        "highest_mean": compare(side("a", [1000.2]), side("b", [1000.4]), preset="highest_mean"),
        "no last50": compare(a, side("b", times(1.1)), preset="last50"),
        "Holm": compare_pairs([(a, side("b", times(1.1))), (a, side("c", times(1.2)))])[0],
    }
    assert_golden("comparison", [f"{name}: {' | '.join((one.reason, one.method, *one.cautions))}" for name, one in cases.items()])


def with_last(made: ComparedGroup, mean_ms: float, stdev_ms: float) -> ComparedGroup:
    last = LastSteps(n=50, mean_ms=mean_ms, stdev_ms=stdev_ms, per_s=16_000 / mean_ms)
    return dataclasses.replace(made, runs=tuple(dataclasses.replace(run, last_steps=last) for run in made.runs))


def test_highest_mean_and_its_tie() -> None:
    a = side("a", [1000.0, 1010.0])
    assert "b wins by its mean" in compare(a, side("b", [1020.0, 1030.0]), preset="highest_mean").reason
    assert "b wins by the lower variance" in compare(a, side("b", [1004.0, 1006.0]), preset="highest_mean").reason
    assert "neither wins" in compare(a, side("b", [1000.0, 1010.0]), preset="highest_mean").reason
    a, b = side("a", [10.0, 10.1], metric="wall_p50_ms"), side("b", [9.0, 9.1], metric="wall_p50_ms")
    assert "b wins by its mean" in compare(a, b, metric="wall_p50_ms", preset="highest_mean").reason, "the lower time"


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'last50'"):
        compare(side("a", [1.0]), side("b", [1.0]), preset="last_50")


def last(n: int, mean_ms: float, stdev_ms: float, per_s: float) -> LastSteps:
    return LastSteps(n=n, mean_ms=mean_ms, stdev_ms=stdev_ms, per_s=per_s)


def with_each(made: ComparedGroup, *of_runs: LastSteps) -> ComparedGroup:
    runs = tuple(dataclasses.replace(run, last_steps=one) for run, one in zip(made.runs, of_runs, strict=True))
    return dataclasses.replace(made, runs=runs)


def test_last_steps_of_several_runs_are_one_list() -> None:
    """30 steps of 10 ms and 10 of 20 ms: the mean is 12.5, the squares about it 6.25 and 56.25, and each run's own 1."""
    a = with_each(side("a", [1, 1]), last(30, 10.0, 1.0, 100.0), last(10, 20.0, 1.0, 50.0))
    b = with_each(side("b", [1, 1]), last(50, 10.0, 0.0, 100.0), last(50, 10.0, 0.0, 100.0))
    assert compare(a, b, preset="last50").reason.startswith(
        "By the rule last50: a 12.5 ms a step, stdev 4.44 ms, 75 per second (last 10 and 30 steps of 2 runs); b 10 ms a step, stdev 0 ms, "
        "100 per second (last 50 steps of 2 runs); b wins by its mean."
    )


def test_a_tie_by_last_steps_weighs_deviations_as_rates() -> None:
    """The same rate in steps of unlike work: 1 of 10 ms is more than 1.5 of 20 ms."""
    a, b = with_each(side("a", [1]), last(50, 10.0, 1.0, 100.0)), with_each(side("b", [1]), last(50, 20.0, 1.5, 100.0))
    assert "the means tie and b wins by the lower variance." in compare(a, b, preset="last50").reason


def test_single_runs_know_no_variance_and_one_without_the_metric_leaves_no_winner() -> None:
    assert "b wins by its mean." in compare(side("a", [1000.0]), side("b", [1001.0]), preset="highest_mean").reason
    assert "neither wins." in compare(side("a", [1000.2]), side("b", [1000.4]), preset="highest_mean").reason
    assert "there is no winner" in compare(side("a", [1.0, 2.0]), side("b", []), preset="highest_mean").reason


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ([], set()),
        # Traces into two files are the same setting; levels differ, however they are written.
        (["TRACE_FILE=/a"], {("TRACE_FILE", "")}),
        (["NCCL_DEBUG= INFO "], {("NCCL_DEBUG", "info")}),
        (["TORCH_DISTRIBUTED_DEBUG=DETAIL"], {("TORCH_DISTRIBUTED_DEBUG", "detail")}),
        (["NCCL_DEBUG=a=B", "PLAIN"], {("NCCL_DEBUG", "a=b"), ("PLAIN", "")}),
    ],
)
def test_debug_settings_by_level(settings: list[str], levels: set[tuple[str, str]]) -> None:
    assert debug_levels(settings) == levels


def test_masked_values_are_not_taken_for_equal_ones() -> None:
    a, b = (dataclasses.replace(side(name, RATES), settings={"env.LICENSE": "***", "env.MODE": "x"}) for name in "ab")
    assert [text for text in compare(a, b).cautions if "masked" in text and "env.LICENSE" in text and "env.MODE" not in text]
    plain = [dataclasses.replace(one, settings={"env.MODE": "x"}) for one in (a, b)]
    assert not [text for text in compare(*plain).cautions if "masked" in text]
