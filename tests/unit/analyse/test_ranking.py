"""The order of groups, the winner, the metric, the cautions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.analyse.groups import summarise_groups
from seatrial.analyse.ranking import rank_groups
from seatrial.analyse.statistics import estimate
from seatrial.core.errors import UsageError
from seatrial.records.caution import Caution
from seatrial.records.measure import Estimate, GroupSummary
from seatrial.records.results import MeasuredRun
from tests.facts import states
from tests.unit.analyse import factory
from tests.unit.analyse.factory import assert_golden
from tests.unit.analyse.factory import group as group_factory


def group(name: str, rates: list[float], *, jitter: float | None = 1.1, metric: str = "samples_per_s", **changes: Any) -> GroupSummary:
    figures: dict[str, Estimate] = {}
    for key, values in ((metric, rates), ("wall_p90_over_p50", [jitter] * len(rates) if jitter else [])):
        found = estimate(values)
        if found:
            figures[key] = found
    return factory.group(name, **{"runs": len(rates), "figures": figures, **changes})


def names(groups: list[GroupSummary], rank_by: str = "throughput") -> list[str]:
    return [place.group for place in rank_groups(groups, rank_by).groups]


def test_clear_differences_are_ordered_and_decided() -> None:
    found = rank_groups([group("slow", [50, 51, 50]), group("fast", [100, 101, 102]), group("mid", [80, 81, 80])], "throughput")
    assert [place.group for place in found.groups] == ["fast", "mid", "slow"]
    assert [place.rank for place in found.groups] == [1, 2, 3]
    assert (found.winner, found.decided, found.metric, found.unit) == ("fast", True, "samples_per_s", "samples/s")
    assert not any(place.tied for place in found.groups)
    assert found.groups[0].ratio is None
    assert found.groups[1].ratio is not None and found.groups[1].ratio.mean == pytest.approx(0.795, rel=0.01)
    assert found.cautions == ()


def test_the_order_is_the_metrics_and_of_a_tie_the_lower_jitter_is_recommended() -> None:
    found = rank_groups(
        [group("jumpy", [100, 104, 96], jitter=1.9), group("calm", [99, 103, 95], jitter=1.05), group("slow", [40, 41, 42])], "throughput"
    )
    assert [place.group for place in found.groups] == ["jumpy", "calm", "slow"], "nothing ranks above a group with the better figure"
    assert [place.tied for place in found.groups] == [True, True, False]
    assert (found.winner, found.decided, found.recommended) == (None, False, "calm")
    assert "lowest p90/p50 (1.05)" in found.recommended_reason


def test_unknown_jitter_is_not_recommended() -> None:
    groups = [group("unknown", [100, 104, 96], jitter=None), group("known", [99, 103, 95], jitter=3.0)]
    assert (names(groups), rank_groups(groups, "throughput").recommended) == (["unknown", "known"], "known")


@pytest.mark.parametrize(
    ("axes", "chosen"),
    [
        ([{"nw": 8}, {"nw": 0}, {"nw": 2}], 1),
        ([{"zero": 1, "nw": 0}, {"zero": 0, "nw": 8}, {"zero": 0, "nw": 2}], 2),
        # No numbers: the plan's own order.
        ([{"attn": "sdpa"}, {"attn": "eager"}, {"attn": "flash"}], 0),
        ([{"compile": True}, {"compile": False}, {"compile": True}], 1),
    ],
)
def test_of_equal_jitter_the_simpler_setting_is_recommended(axes: list[dict[str, Any]], chosen: int) -> None:
    groups = [group(f"g{at}", [100 + at, 104 + at, 96 + at], jitter=1.1 + 0.001 * at, axes=own) for at, own in enumerate(axes)]
    found = rank_groups(groups, "throughput")
    assert (found.recommended, found.winner) == (f"g{chosen}", None)
    # Of names nobody knows which is simpler.
    simplest = "the first in the plan" if "attn" in axes[0] else "the simplest setting"
    assert found.recommended_reason == f"{simplest} of the 3 indistinguishable groups at the top"


def test_groups_that_are_tied_only_because_they_scatter_are_not_counted_as_the_closest() -> None:
    tied = [group(f"nw{nw}", [100 + nw, 101, 99], jitter=1.1, axes={"nw": nw}) for nw in (0, 1)]
    wide = [group("nw4", [120, 90, 60], jitter=1.1, axes={"nw": 4})]
    found = rank_groups([*tied, *wide], "throughput")
    assert [row.tied for row in found.groups] == [True, True, True]
    assert states(found.recommended_reason, "simplest", "2 of 3 tied groups")


def test_jitter_comes_before_the_simpler_setting() -> None:
    """Two of three have the lowest p90/p50: the simpler of these two, though the third is the simplest of all."""
    jitter = {2: 1.1, 1: 1.1, 0: 1.5}
    groups = [group(f"nw{nw}", [100 + nw, 104 + nw, 96 + nw], jitter=own, axes={"nw": nw}) for nw, own in jitter.items()]
    found = rank_groups(groups, "throughput")
    assert found.recommended == "nw1"
    assert found.recommended_reason.startswith("the lowest p90/p50, then the simplest setting, of the 3")


def test_in_the_demo_nothing_leads_that_does_not() -> None:
    """The third row's figure is the best, the first one's p90/p50 the lowest: the first is recommended and ranks by its figure."""
    demo = [("a", 239.7, 1.05), ("b", 243.0, 1.20), ("c", 248.1, 1.12)]
    found = rank_groups([group(name, [rate * 0.97, rate, rate * 1.03], jitter=jitter) for name, rate, jitter in demo], "throughput")
    assert [(place.rank, place.group) for place in found.groups] == [(1, "c"), (2, "b"), (3, "a")]
    assert (found.winner, found.recommended) == (None, "a")


def test_single_runs_are_ordered_by_value_and_prove_nothing() -> None:
    found = rank_groups([group("b", [90], jitter=1.0), group("a", [100], jitter=9.0)], "throughput")
    assert [place.group for place in found.groups] == ["a", "b"]
    assert (found.winner, found.decided, found.recommended) == (None, False, "a")
    assert all(place.tied for place in found.groups)
    assert [caution.kind for caution in found.cautions] == ["one_repeat"]


def test_a_group_with_failed_runs_keeps_its_place_and_cannot_win() -> None:
    found = rank_groups(
        [group("fragile", [200, 201], failed_runs=1), group("solid", [100, 101]), group("dead", [], failed_runs=3)], "throughput"
    )
    assert [place.group for place in found.groups] == ["fragile", "solid", "dead"]
    assert [place.can_win for place in found.groups] == [False, True, False]
    assert (found.recommended, found.groups[0].reason, found.groups[2].reason) == ("solid", "1 of 3 runs failed", "3 of 3 runs failed")
    assert found.groups[2].value is None


def test_a_campaign_that_is_all_off_the_lane_is_ranked_among_itself_and_says_so() -> None:
    found = rank_groups([group("odd", [200, 201], lane=False), group("exotic", [300, 301], lane=False)], "throughput")
    assert [place.group for place in found.groups] == ["exotic", "odd"] and found.off_lane == ()
    assert found.recommended == "exotic" and "off_lane" in {caution.kind for caution in found.cautions}


def test_off_lane_groups_are_ranked_apart() -> None:
    found = rank_groups(
        [group("main", [100, 101]), group("exotic", [300, 301], lane=False), group("odd", [200, 201], lane=False)], "throughput"
    )
    assert [place.group for place in found.groups] == ["main"]
    assert [(place.rank, place.group) for place in found.off_lane] == [(1, "exotic"), (2, "odd")]
    assert found.recommended == "main"


def test_throughput_falls_back_to_what_every_group_has() -> None:
    tokens = group("a", [100, 101], metric="tokens_per_s")
    assert rank_groups([tokens], "throughput").metric == "tokens_per_s"
    both = factory.group("b", figures={"samples_per_s": Estimate(mean=5.0), "steps_per_s": Estimate(mean=2.0)})
    steps = factory.group("c", figures={"steps_per_s": Estimate(mean=3.0)})
    found = rank_groups([both, steps], "throughput")
    assert (found.metric, found.recommended) == ("steps_per_s", "c")
    assert "mixed_figures" in {caution.kind for caution in found.cautions}
    whole = [factory.group(name, figures={"duration_s": Estimate(mean=length)}) for name, length in (("d", 9.0), ("e", 5.0))]
    found = rank_groups(whole, "throughput")
    assert (found.metric, found.higher_is_better, found.recommended) == ("duration_s", False, "e")


def test_groups_on_different_machines_are_a_caution() -> None:
    groups = [
        group(name, rates, stage1={"gpu_name": name}, fingerprint=name) for name, rates in (("H100", [10.0, 10.1]), ("V100", [5.0, 5.1]))
    ]
    found = rank_groups(groups, "throughput")
    assert "gpu_name" in next(caution.text for caution in found.cautions if caution.kind == "unlike_groups")
    assert (found.recommended, found.winner, found.decided) == ("H100", None, False), (
        "a difference between machines decides nothing about settings"
    )


def test_a_group_that_only_scatters_widely_does_not_win_by_that() -> None:
    found = rank_groups([group("good", [160.0, 160.1, 159.9], jitter=1.05), group("noisy", [90.0, 143.0], jitter=1.01)], "throughput")
    assert [place.group for place in found.groups] == ["good", "noisy"]
    assert (found.recommended, found.decided, found.groups[1].tied) == ("good", False, True)


def test_a_best_one_that_scatters_does_not_lift_a_slower_group_over_a_faster() -> None:
    wild, fast, slow = (
        group("a", [60.0, 250.0, 125.0], jitter=1.5),
        group("b", [117.0, 118.0, 117.5], jitter=1.3),
        group("c", [98.0, 98.3, 98.1]),
    )
    found = rank_groups([wild, fast, slow], "throughput")
    assert found.recommended == "b", "c differs from b, whatever the scatter of the best"
    assert found.winner is None and found.groups[0].group == max((wild, fast), key=lambda one: one.figures["samples_per_s"].mean).group


def test_a_large_difference_is_not_given_away_for_a_lower_jitter() -> None:
    found = rank_groups([group("fast", [40.0, 137.0], jitter=1.5), group("slow", [41.0, 41.2], jitter=1.01)], "throughput")
    assert (found.recommended, found.winner, found.decided) == ("fast", None, False)


def test_runs_without_a_steady_state_decide_nothing() -> None:
    found = rank_groups([group("fast", [100, 101, 102], unsteady_runs=2), group("slow", [50, 51, 50])], "throughput")
    assert (found.recommended, found.winner, found.decided) == ("fast", None, False)


def test_a_sentinel_has_no_place() -> None:
    found = rank_groups([group("a", [50, 51, 50]), group("sentinel", [100, 101, 102], mode="sentinel", lane=False)], "throughput")
    assert [place.group for place in (*found.groups, *found.off_lane)] == ["a"]


def test_what_the_platform_failed_weighs_on_no_group_and_decides_nothing() -> None:
    fast = group("fast", [100, 101], infrastructure_failures=("fast_r3 (io_error)",))
    found = rank_groups([fast, group("slow", [50, 51, 50])], "throughput")
    assert (found.recommended, found.winner, found.decided) == ("fast", None, False)
    assert [caution.kind for caution in found.cautions] == ["failed_by_platform"]
    assert "fast_r3 (io_error)" in found.cautions[0].text
    lost = rank_groups([group("lost", [], infrastructure_failures=("lost_r1 (io_error)",))], "throughput")
    assert lost.groups[0].reason == "its runs failed because of the platform"


def test_groups_with_debug_on_are_not_compared_with_those_without() -> None:
    traced = group("traced", [100, 101, 102], debug=("NCCL_DEBUG=INFO",))
    found = rank_groups([traced, group("plain", [50, 51, 50])], "throughput")
    assert (found.recommended, found.decided) == ("plain", False)
    assert found.groups[0].reason == "measured with NCCL_DEBUG=INFO on"
    assert rank_groups([traced], "throughput").recommended == "traced", "where all are traced, the best of them is taken"
    assert [caution.kind for caution in found.cautions] == ["mixed_debug"]


@pytest.mark.parametrize("trouble", ["broken_losses", "may_have_failed"])
def test_a_group_whose_loss_is_no_number_or_that_may_have_failed_cannot_win(trouble: str) -> None:
    found = rank_groups([group("broken", [100, 101, 102], **{trouble: 1}), group("sound", [50, 51, 50])], "throughput")
    assert (found.winner, found.recommended) == (None, "sound")


def test_runs_that_stopped_early_keep_their_group_from_winning() -> None:
    runs = [factory.measured(factory.spec("mb8", repeat, steps=100), measure={"last_step": last}) for repeat, last in ((1, 99), (2, 40))]
    assert [one.may_have_failed for one in summarise_groups(runs, "")] == [1]


def seeded(name: str, p50: float | None, score: float, **changes: Any) -> MeasuredRun:
    """A run whose tail p50 and stability score are given."""
    cells = {} if p50 is None else {"tail_mean_iter_p50_ms": p50, "tail_mean_iter_p90_ms": p50 * score}
    return factory.measured(factory.spec(name, **changes), measure={"stage1": cells})


@pytest.mark.parametrize(
    ("runs", "ranks"),
    [
        (
            [("a", 100.0, 1.5), ("b", 90.0, 1.9), ("c", 110.0, 1.1), ("none", None, 1.0)],
            [(2, 2, 2), (1, 3, 1), (3, 1, 3), (None, None, None)],
        ),
        # By the sum of both places: q is second and first, p first and third, r third and second.
        ([("p", 90.0, 1.9), ("q", 100.0, 1.1), ("r", 110.0, 1.5)], [(1, 3, 2), (2, 1, 1), (3, 2, 3)]),
    ],
)
def test_seed_ranks_by_iter_stability_and_their_sum(
    runs: list[tuple[str, float | None, float]], ranks: list[tuple[int | None, ...]]
) -> None:
    groups = summarise_groups([seeded(*run) for run in runs], "")
    columns = ("rank_by_iter_p50", "rank_by_stability", "rank_balanced")
    assert [tuple(one.stage1[name] for name in columns) for one in groups] == ranks


def test_seed_ranks_are_of_each_lane_alone_and_a_sentinel_has_none() -> None:
    runs = [seeded("main", 100.0, 1.5), seeded("off", 90.0, 1.1, lane=False), seeded("watch", 5.0, 1.0, mode="sentinel", lane=False)]
    assert [one.stage1["rank_by_iter_p50"] for one in summarise_groups(runs, "")] == [1, 1, None]


def test_other_ways_to_rank_and_the_latency_winner() -> None:
    groups = list(summarise_groups([seeded("a", 100.0, 1.5), seeded("b", 90.0, 1.9), seeded("c", 110.0, 1.1)], ""))
    assert names(groups, "iter_p50") == ["b", "a", "c"]
    assert names(groups, "stability") == ["c", "a", "b"]
    assert names(groups, "balanced") == ["b", "a", "c"]
    assert rank_groups(groups, "iter_p50").latency_winner == "b"
    with pytest.raises(UsageError, match=r"did you mean 'samples_per_s'\?"):
        rank_groups(groups, "sample_per_s")


rates = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(rates, st.integers(0, 1)), min_size=1, max_size=6))
def test_every_group_has_one_place_and_the_winner_can_win(drawn: list[tuple[list[float], int]]) -> None:
    groups = [group(f"g{number}", values, failed_runs=failed) for number, (values, failed) in enumerate(drawn)]
    found = rank_groups(groups, "throughput")
    assert sorted(place.group for place in found.groups) == sorted(one.group for one in groups)
    assert [place.rank for place in found.groups] == list(range(1, len(groups) + 1))
    able = {place.group for place in found.groups if place.can_win}
    assert (found.recommended in able) if able else found.recommended is None
    assert found.winner in ((found.recommended,) if found.decided else (None,))
    values = [place.value for place in found.groups if place.value is not None]
    assert values == sorted(values, reverse=True)
    shuffled = rank_groups(groups[::-1], "throughput")
    assert [place.group for place in shuffled.groups] == [place.group for place in found.groups]


def having(name: str, *figures: str, **changes: object) -> GroupSummary:
    return group_factory(name, figures={figure: Estimate(mean=1.0, n=3) for figure in figures}, **changes)


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
    groups = [having(f"g{at}", *own) for at, own in enumerate(figures)]
    assert rank_groups(groups, "throughput").metric == name


def test_groups_beside_the_lane_and_without_runs_do_not_decide() -> None:
    beside = [having(f"b{at}", "steps_per_s", lane=False) for at in range(3)]
    empty = [having(f"e{at}", runs=0) for at in range(3)]
    assert rank_groups([having("a", "samples_per_s"), *beside, *empty], "throughput").metric == "samples_per_s"
    found = rank_groups([*beside, *empty], "throughput")
    assert (found.metric, found.cautions) == ("steps_per_s", ())


def test_groups_without_the_figure_are_named() -> None:
    groups = [having("a", "samples_per_s"), having("b", "samples_per_s"), having("c", "steps_per_s")]
    (caution,) = rank_groups(groups, "throughput").cautions
    assert caution.kind == "mixed_figures" and caution.numbers == {"groups": 3, "lacking": 1}
    assert caution.text.startswith("Not every run of c has samples_per_s: they cannot win.")
    better = [having("a", "samples_per_s", "steps_per_s"), having("b", "steps_per_s"), having("c", "steps_per_s")]
    found = rank_groups(better, "throughput")
    assert found.metric == "steps_per_s" and "b, c has samples_per_s: so all are ranked by steps_per_s" in found.cautions[0].text
    assert rank_groups(better[1:], "throughput").cautions == ()


@pytest.mark.parametrize(("cell", "value"), [(1.5, 1.5), (2, 2.0), (0.0, None), (-1.0, None), (True, None), ("mixed", None), (None, None)])
def test_a_seeds_column_is_a_figure_without_an_interval(cell: object, value: float | None) -> None:
    found = rank_groups([group_factory("a", stage1={"stability_score": cell})], "stability").groups[0].estimate
    assert (found and (found.mean, found.n, found.low)) == (value and (value, 1, None))


def cautions(*groups: GroupSummary, metric: str = "samples_per_s") -> dict[str, Caution]:
    return {caution.kind: caution for caution in rank_groups(groups, metric).cautions}


def pair(first: dict[str, Any], second: dict[str, Any]) -> tuple[GroupSummary, GroupSummary]:
    return group_factory("a", **first), group_factory("b", **second)


def test_a_rate_of_samples_is_not_about_steps() -> None:
    assert cautions(*pair({"axes": {"bs": 8}}, {"axes": {"bs": 16}})) == {}


def test_single_repeats() -> None:
    assert cautions(*pair({"runs": 1}, {"runs": 2}))["one_repeat"].numbers == {"groups": 1}
    assert cautions(group_factory("a", runs=1)) == {}, "a group alone is in no order"
    assert cautions(*pair({"runs": 0}, {"runs": 1})) == {}


def test_debug_in_some_groups_and_not_in_others() -> None:
    assert cautions(*pair({"debug": ("NCCL_DEBUG=INFO",)}, {}))["mixed_debug"].numbers == {"groups": 1}
    assert cautions(*pair({"debug": ("NCCL_DEBUG=INFO",)}, {"debug": ("NCCL_DEBUG=info",)})) == {}


def test_sentences() -> None:
    """Every sentence of a ranking, whole."""
    slow, failed = group("slow", [50, 51, 50]), ("a_r3 (io_error)", "a_r4 (io_error)")
    cases = {
        "clear": [group("fast", [100, 101, 102]), slow],
        "lower is better": [group("fast", [10, 10.1], metric="duration_s"), group("slow", [20, 20.1], metric="duration_s")],
        "tie by jitter": [group("jumpy", [100, 104, 96], jitter=1.9), group("calm", [99, 103, 95], jitter=1.05), slow],
        "tie by value": [group("good", [160.0, 160.1, 159.9], jitter=1.05), group("noisy", [90.0, 143.0], jitter=1.01)],
        "single runs": [group("a", [100]), group("b", [90])],
        "some single runs": [group("a", [100]), slow],
        "one can win": [group("fragile", [200, 201], failed_runs=1), slow],
        "one has ended": [slow, group("pending", [])],
        "alone": [slow],
        "none": [],
        "none can win": [group(name, [], failed_runs=runs) for name, runs in (("a", 2), ("b", 2), ("c", 1), ("d", 0))],
        "many cannot win": [group(f"g{at:02}", [], failed_runs=1) for at in range(20)],
        "many reasons": [group(f"g{at}", [], failed_runs=at + 1) for at in range(6)],
        "platform": [group("fast", [100, 101], infrastructure_failures=failed), slow, group("lost", [], infrastructure_failures=failed)],
        "unsteady": [group("fast", [100, 101, 102], unsteady_runs=2), slow],
        "loss": [group("broken", [100, 101, 102], broken_losses=1), slow],
        "no metric": [group("a", [1.0, 1.1]), slow, factory.group("poor", figures={"duration_s": Estimate(mean=5.0)})],
        "debug": [group("traced", [100, 101], debug=("NCCL_DEBUG=INFO",)), slow],
        "machines": [group("a", [1, 1.1], fingerprint="x", stage1={"gpu_name": "A"}), group("b", [2, 2.1], fingerprint="y")],
        "conditions": [group("a", [1, 1.1], fingerprint="x"), group("b", [2, 2.1], fingerprint="y")],
        "batch": [group(f"bs{size}", [10.0, 11.0], metric="steps_per_s", axes={"bs": size}) for size in (8, 16)],
        "tie, equal jitter": [group(f"nw{at}", [100 + at, 104, 96], jitter=1.1, axes={"nw": at}) for at in (0, 2)],
        "length": [group(f"n{size}", [10.0 * size, 11.0 * size], axes={"seq_len": size}) for size in (8, 16)],
        "batch by duration": [group(f"bs{size}", [10.0, 11.0], metric="duration_s", axes={"bs": size}) for size in (8, 16)],
    }
    lines = []
    for name, groups in cases.items():
        found = rank_groups(groups, "throughput")
        reasons = [f"{place.group}: {place.reason}" for place in found.groups if place.reason]
        recommended = [f"recommended {found.recommended}: {found.recommended_reason}"] if found.recommended_reason else []
        lines.append(f"{name}: {' | '.join((found.reason, *recommended, *reasons, *(caution.text for caution in found.cautions)))}")
    stage1_lines = rank_groups(summarise_groups([seeded("a", 100.0, 1.5), seeded("b", 90.0, 1.9)], ""), "iter_p50").reason
    assert_golden("ranking", [*lines, f"seeds' column: {stage1_lines}"])


def typed(name: str, axes: dict[str, Any], step_s: float, samples_per_step: float | None = 8.0) -> GroupSummary:
    """A group whose samples/s come from steps and a number that the user typed."""
    rates = [1 / step_s, 1.01 / step_s, 0.99 / step_s]
    figures = {"steps_per_s": estimate(rates), "samples_per_s": estimate([8 * rate for rate in rates])}
    typed_work = {"samples_per_step": samples_per_step} if samples_per_step else {}
    return factory.group(name, runs=3, axes=axes, figures=figures, typed_work=typed_work)


@pytest.mark.parametrize(
    ("groups", "setting"),
    [
        ([typed("s32", {"s": 32}, 0.02), typed("s64", {"s": 64}, 0.03)], "s"),
        # A smaller batch with more accumulation, or a part of a global batch.
        ([typed("bs4", {"bs": 4, "accum": 2}, 0.02), typed("bs8", {"bs": 8, "accum": 1}, 0.03)], "bs"),
        ([typed("bs4", {"bs": 4, "global_batch_size": 8}, 0.02), typed("bs8", {"bs": 8, "global_batch_size": 8}, 0.03)], "bs"),
        # Their steps take as long.
        ([typed("s32", {"s": 32}, 0.02), typed("s64", {"s": 64}, 0.02)], None),
        ([typed("nw0", {"num_workers": 0}, 0.03), typed("nw2", {"num_workers": 2}, 0.02)], None),
        # `{s}*4` is another number in each.
        ([typed("s2", {"s": 2}, 0.02, 8), typed("s4", {"s": 4}, 0.03, 16)], None),
        ([typed("s32", {"s": 32}, 0.02, None), typed("s64", {"s": 64}, 0.03, None)], None),
    ],
)
def test_a_constant_that_was_typed_beside_an_axis_of_unknown_meaning_is_a_caution(groups: list[GroupSummary], setting: str | None) -> None:
    found = rank_groups(groups, "throughput")
    cautions = [caution for caution in found.cautions if caution.kind == "constant_work"]
    assert [caution.numbers["setting"] for caution in cautions] == ([setting] if setting else [])
    assert found.metric == "samples_per_s" and found.groups[0].can_win
