"""B against A: what decides, what is refused, and what many comparisons cost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from seatrial.analyse.alike import refusal
from seatrial.analyse.compare import compare, compare_pairs
from seatrial.analyse.trial import pairs_of
from seatrial.errors import RefusedError, UsageError
from seatrial.records.codec import from_json, to_json
from seatrial.records.comparison import Comparison, LossVerdict, Relation, Side
from tests.unit.analyse.made_sides import MACHINE, course, elsewhere, side

RATES = [1000.0, 1010.0, 990.0, 1005.0, 996.0]
WANDERING = [1000.0, 1200.0, 900.0, 1100.0, 800.0]


def times(factor: float, rates: list[float] = RATES) -> list[float]:
    """The rates, each a little off the factor."""
    return [rate * factor * (1 + 0.002 * (-1) ** at) for at, rate in enumerate(rates)]


@pytest.mark.parametrize(("factor", "relation"), [(1.05, Relation.FASTER), (0.95, Relation.SLOWER), (1.0, Relation.SAME)])
def test_pairs_tell_what_a_wandering_platform_would_hide(factor: float, relation: Relation) -> None:
    found = compare(side("a", WANDERING), side("b", times(factor, WANDERING), offset_s=40))
    assert found.relation is relation
    assert found.method == "paired t on logs, 5 pairs"
    apart = compare(side("a", WANDERING), elsewhere("b", times(factor, WANDERING)))
    assert apart.relation is Relation.AMBIGUOUS
    assert apart.method == "Welch on logs, 5 and 5 runs"


def test_interval_and_chance_are_those_of_the_paired_t_on_logs() -> None:
    a, b = WANDERING, times(1.02, WANDERING)
    found = compare(side("a", a), side("b", b))
    expected = stats.ttest_rel(np.log(b), np.log(a))
    ends = expected.confidence_interval(0.95)
    assert found.chance == pytest.approx(expected.pvalue)
    assert found.ratio is not None
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(ends.low), math.exp(ends.high)))


def test_interval_and_chance_are_welchs_for_equal_counts() -> None:
    a, b = RATES, times(1.03, WANDERING)
    found = compare(side("a", a), elsewhere("b", b))
    expected = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
    ends = expected.confidence_interval(0.95)
    assert found.chance == pytest.approx(expected.pvalue)
    assert found.ratio is not None
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(ends.low), math.exp(ends.high)))


def test_two_runs_beside_ten_are_not_trusted_to_know_their_spread() -> None:
    few, many = [1000.0, 1001.0], [1020.0 + at for at in range(10)]
    found, welch = compare(side("a", few), elsewhere("b", many)), stats.ttest_ind(np.log(many), np.log(few), equal_var=False)
    assert found.chance is not None and found.chance > welch.pvalue


def test_read_from_either_side_it_is_the_same() -> None:
    a, b = side("a", RATES), elsewhere("b", times(1.05))
    there, back = compare(a, b), compare(b, a)
    assert (there.relation, back.relation) == (Relation.FASTER, Relation.SLOWER)
    assert there.ratio is not None and back.ratio is not None
    assert there.ratio.low is not None and back.ratio.high == pytest.approx(1 / there.ratio.low)


def test_less_is_faster_for_times() -> None:
    found = compare(side("a", RATES, metric="wall_p50_ms"), side("b", times(0.9), metric="wall_p50_ms"), metric="wall_p50_ms")
    assert found.relation is Relation.FASTER and not found.higher_is_better
    assert "10.0 % fewer ms a step" in found.reason


def test_what_differs_by_less_than_the_margin_is_the_same() -> None:
    a, b = side("a", RATES), side("b", times(1.005))
    assert compare(a, b).relation is Relation.SAME
    assert compare(a, b, margin_pct=0.1).relation is Relation.FASTER


@pytest.mark.parametrize(
    ("factor", "relation", "says"),
    [
        (1.005, Relation.AMBIGUOUS, "which may not matter: it is within the margin of 0.6 %, and its interval reaches beyond"),
        (1.0075, Relation.FASTER, "It may still be within the 0.6 % that does not matter."),
        (1.03, Relation.FASTER, "b has 3.0 % more samples/s than a"),
        (0.97, Relation.SLOWER, "b has 3.0 % fewer samples/s than a"),
    ],
)
def test_a_margin_wants_the_middle_beyond_it(factor: float, relation: Relation, says: str) -> None:
    found = compare(side("a", RATES), side("b", times(factor)), margin_pct=0.6)
    assert found.relation is relation and says in found.reason
    assert ("may still be" in found.reason) == (factor == 1.0075)


def test_figures_without_any_noise_are_not_believed() -> None:
    found = compare(side("a", [12.0, 12.0], metric="duration_s"), side("b", [11.0, 11.0], metric="duration_s"), metric="duration_s")
    assert (found.relation, found.ratio) == (Relation.AMBIGUOUS, None) and "rounded or copies" in found.reason


def test_ambiguous_says_how_many_repeats_would_tell() -> None:
    found = compare(side("a", WANDERING), elsewhere("b", times(1.05, WANDERING)))
    assert found.relation is Relation.AMBIGUOUS
    assert "repeats a side would show a difference of 5" in found.reason
    assert found.detectable_pct is not None and found.detectable_pct > 20


def test_one_run_has_no_interval_and_none_is_made_up() -> None:
    found = compare(side("a", RATES), side("b", [5000.0]))
    assert (found.relation, found.ratio, found.chance, found.bootstrap_low) == (Relation.AMBIGUOUS, None, None, None)
    assert "b has one run only" in found.reason
    assert found.value_b is not None and found.value_b.n == 1


def test_no_run_at_all_is_ambiguous() -> None:
    found = compare(side("a", RATES), side("b", []))
    assert found.relation is Relation.AMBIGUOUS and "no run that counts" in found.reason


def restless(made: Side, p90_over_p50: float | None, *repeats: int) -> Side:
    """The side with runs that found no steady state."""
    spread = {} if p90_over_p50 is None else {"wall_p90_over_p50": p90_over_p50}
    runs = (
        dataclasses.replace(run, steady=False, figures={**run.figures, **spread}) if run.repeat in repeats else run for run in made.runs
    )
    return dataclasses.replace(made, runs=tuple(runs))


def test_unsteady_runs_are_named_and_nothing_is_said() -> None:
    found = compare(side("a", RATES), restless(side("b", times(1.5)), 1.3, 1, 2, 3, 4, 5))
    assert (found.relation, found.ratio, found.chance) == (Relation.AMBIGUOUS, None, None)
    assert "no steady state was found in b_r1, b_r2, b_r3 and 2 more, whose steps vary by up to 69.0 %" in found.reason
    unknown = compare(side("a", RATES), restless(side("b", times(5.0)), None, 1))
    assert unknown.ratio is None and "no steady state was found in b_r1: run more steps" in unknown.reason


@pytest.mark.parametrize(("factor", "relation"), [(5.3, Relation.FASTER), (1 / 5.3, Relation.SLOWER)])
def test_a_difference_beyond_what_unsteady_steps_vary_by_stands(factor: float, relation: Relation) -> None:
    found = compare(side("a", RATES), restless(side("b", times(factor)), 1.2, 2, 4))
    assert found.relation is relation and found.ratio is not None
    assert any("No steady state was found in b_r2, b_r4: their steps vary by up to 44.0 %" in caution for caution in found.cautions)


def test_small_differences_of_unsteady_runs_never_stand() -> None:
    found = compare(side("a", RATES), restless(side("b", times(1.2)), 1.0, 1))
    assert found.relation is Relation.AMBIGUOUS and "up to 25.0 %" in found.reason


def test_failures_of_the_platform_block_until_they_are_run_again() -> None:
    found = compare(side("a", RATES), side("b", times(1.5), infrastructure_failures=("b_r6 (io_error)",)))
    assert (found.relation, found.ratio) == (Relation.AMBIGUOUS, None)
    assert found.blocked == "the platform failed b_r6 (io_error): run it again on a healthy platform first"
    assert found.blocked in found.reason


def test_failed_runs_are_a_caution() -> None:
    found = compare(side("a", RATES), side("b", times(1.1), failed_runs=2))
    assert found.relation is Relation.FASTER and any("2 runs of b failed" in caution for caution in found.cautions)


def test_unlike_machines_are_refused_unless_asked_for() -> None:
    a, b = side("a", RATES), elsewhere("b", times(1.1), machine={**MACHINE, "gpu_name": "Other GPU"})
    with pytest.raises(RefusedError, match=r"unlike machines: gpu_name \(Example GPU → Other GPU\).*--across") as refused:
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


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("TORCH_TRACE=/a", "TORCH_TRACE=/b", True),
        ("NSYS_PROFILING_SESSION_ID=12", "NSYS_PROFILING_SESSION_ID=13", True),
        ("NCCL_DEBUG=INFO", "NCCL_DEBUG=info", True),
        ("NCCL_DEBUG=INFO", "NCCL_DEBUG=TRACE", False),
        ("TORCH_DISTRIBUTED_DEBUG=INFO", "TORCH_DISTRIBUTED_DEBUG=DETAIL", False),
        ("TORCH_LOGS=dynamo", "TORCH_LOGS=+dynamo", True),
        ("TORCH_LOGS=dynamo", "TORCH_TRACE=/a", False),
    ],
)
def test_debug_settings_are_alike_by_name_and_level(one: str, other: str, alike: bool) -> None:
    assert (refusal(side("a", RATES, debug=(one,)), side("b", RATES, debug=(other,))) == "") is alike


def test_copies_are_the_same_runs() -> None:
    a, b = side("a", RATES), side("b", times(1.1))
    copied = dataclasses.replace(a, name="copy:a", campaign="/copy", source="copy")
    with pytest.raises(RefusedError, match=r"a and copy:a are the same runs \(a_r1, a_r2, a_r3 and 2 more\)"):
        compare(a, copied)
    with pytest.raises(RefusedError, match=r"have runs in common \(a_r1\)"):
        compare(a, dataclasses.replace(b, runs=(a.runs[0], *b.runs)))


def test_unlike_numbers_of_ranks_are_compared_by_gpu() -> None:
    a, b = side("a", RATES), elsewhere("b", times(1.9), world_size=2)
    found = compare(a, b, preset="highest_mean")
    assert (found.relation, found.unit, found.metric) == (Relation.SLOWER, "samples/s per GPU", "samples_per_s")
    assert found.ratio is not None and found.ratio.mean == pytest.approx(0.95, abs=0.01)
    assert found.value_b is not None and found.value_b.mean == pytest.approx(950, rel=0.01)
    assert "a wins by its mean" in found.reason and "fewer samples/s per GPU than a" in found.reason
    assert any("a ran on 1 rank and b on 2: samples/s per GPU is what is compared" in caution for caution in found.cautions)
    steps = compare(side("a", RATES, metric="steps_per_s"), elsewhere("b", RATES, metric="steps_per_s", world_size=2))
    assert (steps.relation, steps.ratio) == (Relation.AMBIGUOUS, None) and "the number of ranks (1 → 2) differs" in steps.reason


def test_other_code_is_what_it_is_for() -> None:
    found = compare(side("a", RATES, code={"git_commit_hash": "abc"}), side("b", times(1.1), code={"git_commit_hash": "def"}))
    assert found.differs == ("git_commit_hash (abc → def)",) and found.relation is Relation.FASTER


def test_throughput_is_what_both_tell() -> None:
    samples, tokens = side("a", RATES), side("b", RATES, metric="tokens_per_s")
    assert compare(samples, tokens).metric == "steps_per_s"
    with pytest.raises(RefusedError, match="a tells samples_per_s, steps_per_s; b tells tokens_per_s, steps_per_s"):
        compare(samples, tokens, metric="samples_per_s")
    with pytest.raises(UsageError, match="did you mean 'samples_per_s'"):
        compare(samples, tokens, metric="sample_per_s")


@pytest.mark.parametrize(("metric", "what"), [("steps_per_s", "a step"), ("duration_s", "a run")])
def test_steps_of_unlike_size_say_nothing(metric: str, what: str) -> None:
    sides = [
        side(name, times(factor), metric=metric, settings={"env.BATCH_SIZE": batch})
        for name, factor, batch in (("a", 1, "8"), ("b", 2, "16"))
    ]
    found = compare(*sides, metric=metric)
    assert (found.relation, found.ratio) == (Relation.AMBIGUOUS, None)
    assert f"env.BATCH_SIZE (8 → 16) differs, so {what} does not do the same work" in found.reason
    assert "workload.samples_per_step" in found.reason


def test_steps_that_tell_unlike_work_say_nothing_and_their_times_are_a_caution() -> None:
    a, b = side("a", RATES), side("b", times(1.5))
    runs = (
        dataclasses.replace(run, figures={**run.figures, "steps_per_s": 50.0 + run.repeat, "wall_p50_ms": 20.0 + run.repeat})
        for run in b.runs
    )
    b = dataclasses.replace(b, runs=tuple(runs))
    assert "a step takes 10 samples in a and 28" in compare(a, b, metric="steps_per_s").reason
    a = dataclasses.replace(a, runs=tuple(dataclasses.replace(run, figures={**run.figures, "wall_p50_ms": 10.0}) for run in a.runs))
    timed = compare(a, b, metric="wall_p50_ms")
    assert timed.ratio is not None and any("ms a step is compared while a step takes 10 samples" in caution for caution in timed.cautions)


def test_a_run_that_does_not_tell_the_metric_is_left_out() -> None:
    a, b = side("a", RATES), side("b", times(1.1))
    silent = dataclasses.replace(b.runs[2], figures={"steps_per_s": 1.0})
    found = compare(a, dataclasses.replace(b, runs=(*b.runs[:2], silent, *b.runs[3:])))
    assert (found.metric, found.relation) == ("samples_per_s", Relation.FASTER)
    assert found.value_b is not None and found.value_b.n == 4
    assert any("samples/s is compared, and b_r3 does not tell it and is left out" in caution for caution in found.cautions)
    few = dataclasses.replace(b, runs=(b.runs[0], silent))
    assert compare(a, few).metric == "steps_per_s"


def test_a_faster_one_that_learns_worse_does_not_count() -> None:
    a = side("a", RATES, run={"loss": course(2.0)})
    b = side("b", times(1.2), run={"loss": course(2.5, seed=1)})
    found = compare(a, b)
    assert found.relation is Relation.FASTER
    assert found.loss is not None and found.loss.verdict is LossVerdict.WORSE
    assert "does not count as a speed-up" in found.reason


def shifted(made: Side, starts_t: list[float]) -> Side:
    runs = (dataclasses.replace(run, started_t=t) for run, t in zip(made.runs, starts_t, strict=True))
    return dataclasses.replace(made, runs=tuple(runs))


def test_pairs_are_runs_made_in_rounds_of_one_campaign() -> None:
    a, b = side("a", RATES[:3]), side("b", RATES[:3], offset_s=50)
    assert [(one.run, other.run) for one, other in pairs_of(a, b)] == [("a_r1", "b_r1"), ("a_r2", "b_r2"), ("a_r3", "b_r3")]
    assert pairs_of(a, side("b", RATES[:2])) == []
    assert pairs_of(a, elsewhere("b", RATES[:3])) == []
    assert pairs_of(dataclasses.replace(a, campaign=""), dataclasses.replace(b, campaign="")) == []
    nested = shifted(b, [5000.0, 5100.0, 5200.0])
    assert pairs_of(a, nested) == []
    assert any("in rounds" in caution for caution in compare(a, nested).cautions)
    assert len(pairs_of(shifted(a, [0.0] * 3), shifted(b, [0.0] * 3))) == 3


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


def test_it_can_be_kept_and_read_again() -> None:
    found = compare(side("a", RATES), side("b", times(1.05)))
    assert from_json(Comparison, to_json(found)) == found
    kept = side("a", RATES, run={"loss": course(2.0)})
    assert from_json(Side, to_json(kept)) == kept


@pytest.mark.parametrize(
    ("b", "how"), [(side("b", RATES[:4]), "in rounds with the same repeats"), (elsewhere("b", RATES), "side by side, in one campaign")]
)
def test_runs_that_were_not_made_together_are_told(b: Side, how: str) -> None:
    found = compare(side("a", RATES), b)
    assert f"The runs were not made {how}: a change of the platform in between would look like a difference." in found.cautions


def test_a_figure_that_most_runs_of_a_side_tell_is_compared_and_one_that_half_tell_is_not() -> None:
    def telling(count: int) -> Side:
        made = side("b", RATES[:4])
        bare = tuple(dataclasses.replace(run, figures={"steps_per_s": run.figures["steps_per_s"]}) for run in made.runs[count:])
        return dataclasses.replace(made, runs=(*made.runs[:count], *bare))

    assert compare(side("a", RATES), telling(3)).metric == "samples_per_s"
    assert compare(side("a", RATES), telling(2)).metric == "steps_per_s"


def test_a_rule_is_said_of_every_one_of_many_and_the_bootstrap_stands_beside_the_interval() -> None:
    found = compare_pairs([(side("a", RATES), side(*other)) for other in (("b", times(1.05)), ("c", times(0.95)))], preset="highest_mean")
    assert [one.reason.startswith("By the rule highest_mean: ") for one in found] == [True, True]
    assert all(one.ratio and one.bootstrap_low and one.bootstrap_high for one in found)
    assert all(one.ratio and one.bootstrap_low < one.ratio.mean < one.bootstrap_high for one in found)  # type: ignore[operator]
