"""Order, ties, winners and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.analyse.interval import estimate
from seatrial.analyse.rank import rank, with_seed_ranks
from seatrial.errors import UsageError
from seatrial.records.measure import Estimate, GroupSummary
from tests.unit.analyse import factory


def group(name: str, rates: list[float], *, jitter: float | None = 1.1, metric: str = "samples_per_s", **changes: Any) -> GroupSummary:
    figures: dict[str, Estimate] = {}
    for key, values in ((metric, rates), ("wall_p90_over_p50", [jitter] * len(rates) if jitter else [])):
        found = estimate(values)
        if found:
            figures[key] = found
    return factory.group(name, **{"runs": len(rates), "figures": figures, **changes})


def names(groups: list[GroupSummary], rank_by: str = "throughput") -> list[str]:
    return [place.group for place in rank(groups, rank_by).groups]


def test_clear_differences_are_ordered_and_decided() -> None:
    found = rank([group("slow", [50, 51, 50]), group("fast", [100, 101, 102]), group("mid", [80, 81, 80])], "throughput")
    assert [place.group for place in found.groups] == ["fast", "mid", "slow"]
    assert [place.rank for place in found.groups] == [1, 2, 3]
    assert (found.winner, found.decided, found.metric, found.unit) == ("fast", True, "samples_per_s", "samples/s")
    assert not any(place.tied for place in found.groups)
    assert found.groups[0].ratio is None
    assert found.groups[1].ratio is not None and found.groups[1].ratio.mean == pytest.approx(0.795, rel=0.01)
    assert found.reason == "fast has the highest samples/s, told apart from every other group."
    assert found.cautions == ()


def test_a_tie_goes_to_the_lower_jitter() -> None:
    found = rank(
        [group("jumpy", [100, 104, 96], jitter=1.9), group("calm", [99, 103, 95], jitter=1.05), group("slow", [40, 41, 42])], "throughput"
    )
    assert [place.group for place in found.groups] == ["calm", "jumpy", "slow"]
    assert [place.tied for place in found.groups] == [True, True, False]
    assert (found.winner, found.decided) == ("calm", False)
    assert found.reason == "calm is not told apart from jumpy by the data; the tie goes to it for the lowest p90/p50."


def test_unknown_jitter_comes_last_among_the_tied() -> None:
    assert names([group("unknown", [100, 104, 96], jitter=None), group("known", [99, 103, 95], jitter=3.0)]) == ["known", "unknown"]


def test_single_runs_are_ordered_by_value_and_prove_nothing() -> None:
    found = rank([group("b", [90], jitter=1.0), group("a", [100], jitter=9.0)], "throughput")
    assert [place.group for place in found.groups] == ["a", "b"]
    assert (found.winner, found.decided) == ("a", False)
    assert all(place.tied for place in found.groups)
    assert [caution.kind for caution in found.cautions] == ["one_repeat"]
    assert "not evidence" in found.reason


def test_a_group_with_failed_runs_keeps_its_place_and_cannot_win() -> None:
    found = rank([group("fragile", [200, 201], failed_runs=1), group("solid", [100, 101]), group("dead", [], failed_runs=3)], "throughput")
    assert [place.group for place in found.groups] == ["fragile", "solid", "dead"]
    assert [place.can_win for place in found.groups] == [False, True, False]
    assert (found.winner, found.groups[0].reason, found.groups[2].reason) == ("solid", "1 of 3 runs failed", "3 of 3 runs failed")
    assert found.groups[2].value is None
    assert found.reason == "solid is the only group that can win."


def test_no_group_that_can_win_means_no_winner() -> None:
    found = rank([group("a", [], failed_runs=2)], "throughput")
    assert (found.winner, found.decided, found.latency_winner) == (None, False, None)
    assert found.reason == "No group can win: a: 2 of 2 runs failed."
    assert rank([], "throughput").reason == "No group can win: there is none."


def test_whoever_cannot_win_is_named_with_the_reason() -> None:
    groups = [group(name, [], failed_runs=failed) for name, failed in (("a", 2), ("b", 2), ("c", 1), ("d", 0))]
    assert (
        rank(groups, "throughput").reason == "No group can win: a, b: 2 of 2 runs failed; c: 1 of 1 runs failed; d: no run has ended yet."
    )
    many = rank([group(f"g{at:02}", [], failed_runs=1) for at in range(20)], "throughput").reason
    assert many == "No group can win: g00, g01, g02, g03, g04, g05, g06, g07 and 12 more: 1 of 1 runs failed."
    unlike = rank([group(f"g{at}", [], failed_runs=at + 1) for at in range(6)], "throughput").reason
    assert unlike.endswith("g3: 4 of 4 runs failed; and 2 more reasons.")


def test_off_lane_groups_are_ranked_apart() -> None:
    found = rank([group("main", [100, 101]), group("exotic", [300, 301], lane=False), group("odd", [200, 201], lane=False)], "throughput")
    assert [place.group for place in found.groups] == ["main"]
    assert [(place.rank, place.group) for place in found.off_lane] == [(1, "exotic"), (2, "odd")]
    assert found.winner == "main"


def test_throughput_falls_back_to_what_every_group_has() -> None:
    tokens = group("a", [100, 101], metric="tokens_per_s")
    assert rank([tokens], "throughput").metric == "tokens_per_s"
    both = factory.group("b", figures={"samples_per_s": Estimate(mean=5.0), "steps_per_s": Estimate(mean=2.0)})
    steps = factory.group("c", figures={"steps_per_s": Estimate(mean=3.0)})
    found = rank([both, steps], "throughput")
    assert (found.metric, found.winner) == ("steps_per_s", "c")
    assert "mixed_figures" in {caution.kind for caution in found.cautions}
    whole = [factory.group(name, figures={"duration_s": Estimate(mean=length)}) for name, length in (("d", 9.0), ("e", 5.0))]
    found = rank(whole, "throughput")
    assert (found.metric, found.higher_is_better, found.winner) == ("duration_s", False, "e")


@pytest.mark.parametrize("axis", ["bs", "batch_size", "micro_batch", "mb", "per_device_train_batch_size", "batch"])
def test_steps_of_unlike_size_are_not_compared_in_silence(axis: str) -> None:
    groups = [group(str(size), [10.0, 11.0], metric="steps_per_s", axes={axis: size}) for size in (8, 16)]
    kinds = {caution.kind for caution in rank(groups, "throughput").cautions}
    assert "steps_compared" in kinds
    same = [group(str(workers), [10.0, 11.0], metric="steps_per_s", axes={axis: 8, "nw": workers}) for workers in (0, 2)]
    assert "steps_compared" not in {caution.kind for caution in rank(same, "throughput").cautions}


def test_groups_on_unlike_machines_are_said() -> None:
    groups = [
        group(name, rates, seed={"gpu_name": name}, fingerprint=name) for name, rates in (("H100", [10.0, 10.1]), ("V100", [5.0, 5.1]))
    ]
    found = rank(groups, "throughput")
    assert "gpu_name" in next(caution.text for caution in found.cautions if caution.kind == "unlike_groups")
    assert (found.winner, found.decided) == ("H100", False), "a difference between machines decides nothing about settings"


def test_a_group_that_only_scatters_widely_does_not_win_by_that() -> None:
    found = rank([group("good", [160.0, 160.1, 159.9], jitter=1.05), group("noisy", [90.0, 143.0], jitter=1.01)], "throughput")
    assert [place.group for place in found.groups] == ["good", "noisy"]
    assert (found.winner, found.decided, found.groups[1].tied) == ("good", False, True)
    assert found.reason == "good is not told apart from noisy by the data; it stands first by its samples/s."


def test_a_best_one_that_scatters_does_not_lift_a_slower_group_over_a_faster() -> None:
    wild, fast, slow = (
        group("a", [60.0, 250.0, 125.0], jitter=1.5),
        group("b", [117.0, 118.0, 117.5], jitter=1.3),
        group("c", [98.0, 98.3, 98.1]),
    )
    found = rank([wild, fast, slow], "throughput")
    assert found.winner == "b" and [place.group for place in found.groups] == ["b", "a", "c"]
    assert found.reason.startswith("b is not told apart from a by the data"), "c is told apart from b, whatever the scatter of the best"


def test_a_large_difference_is_not_given_away_for_a_lower_jitter() -> None:
    found = rank([group("fast", [40.0, 137.0], jitter=1.5), group("slow", [41.0, 41.2], jitter=1.01)], "throughput")
    assert (found.winner, found.decided) == ("fast", False)


def test_runs_without_a_steady_state_decide_nothing() -> None:
    found = rank([group("fast", [100, 101, 102], unsteady_runs=2), group("slow", [50, 51, 50])], "throughput")
    assert (found.winner, found.decided) == ("fast", False)
    assert found.reason == "fast has the highest samples/s, but 2 of its 3 runs had no steady state; run more steps."


def test_a_rival_that_cannot_win_was_never_beaten() -> None:
    found = rank([group("fast", [200, 201], failed_runs=1), group("slow", [50, 51])], "throughput")
    assert (found.winner, found.decided) == ("slow", False)


def test_one_poor_run_does_not_change_what_the_others_are_ranked_by() -> None:
    poor = factory.group("poor", figures={"duration_s": Estimate(mean=5.0)})
    found = rank([group("a", [100, 101]), group("b", [80, 81]), poor], "throughput")
    assert (found.metric, found.winner) == ("samples_per_s", "a")
    assert next(place for place in found.groups if place.group == "poor").can_win is False
    assert "mixed_figures" in {caution.kind for caution in found.cautions}


def test_seed_ranks_are_of_each_lane_alone() -> None:
    groups = with_seed_ranks([seeded("main", 100.0, 1.5), replace(seeded("off", 90.0, 1.1), lane=False)])
    assert [one.seed["rank_by_iter_p50"] for one in groups] == [1, 1]


def test_a_sentinel_has_no_place() -> None:
    found = rank([group("a", [50, 51, 50]), group("sentinel", [100, 101, 102], mode="sentinel", lane=False)], "throughput")
    assert [place.group for place in (*found.groups, *found.off_lane)] == ["a"]
    kept = with_seed_ranks([seeded("a", 10.0, 1.0), replace(seeded("sentinel", 5.0, 1.0), mode="sentinel", lane=False)])
    assert [group.seed.get("rank_by_iter_p50") for group in kept] == [1, None]


def test_what_the_platform_failed_weighs_on_no_group_and_decides_nothing() -> None:
    fast = group("fast", [100, 101], infrastructure_failures=("fast_r3 (io_error)",))
    found = rank([fast, group("slow", [50, 51, 50])], "throughput")
    assert (found.winner, found.decided) == ("fast", False)
    assert [caution.kind for caution in found.cautions] == ["failed_by_platform"]
    assert "fast_r3 (io_error)" in found.cautions[0].text
    assert found.reason.endswith("But 1 run that the platform failed has to be made again before that may be put down to the settings.")
    lost = rank([group("lost", [], infrastructure_failures=("lost_r1 (io_error)",))], "throughput")
    assert lost.groups[0].reason == "the platform failed its runs"


def test_groups_with_debug_on_are_not_held_against_those_without() -> None:
    traced = group("traced", [100, 101, 102], debug=("NCCL_DEBUG=INFO",))
    found = rank([traced, group("plain", [50, 51, 50])], "throughput")
    assert (found.winner, found.decided) == ("plain", False)
    assert found.groups[0].reason == "measured with NCCL_DEBUG=INFO on"
    assert rank([traced], "throughput").winner == "traced", "where all are traced, the best of them leads"
    assert [caution.kind for caution in found.cautions] == ["mixed_debug"]


def test_a_group_whose_loss_is_no_number_cannot_win() -> None:
    found = rank([group("broken", [100, 101, 102], broken_losses=1), group("sound", [50, 51, 50])], "throughput")
    assert found.winner == "sound"
    assert found.groups[0].reason == "the loss of 1 of 3 runs is no number"


def seeded(name: str, p50: float, score: float) -> GroupSummary:
    return factory.group(name, seed={"tail_mean_iter_p50_ms_mean": p50, "stability_score": score})


def test_seed_ranks_by_iter_stability_and_their_sum() -> None:
    groups = with_seed_ranks([seeded("a", 100.0, 1.5), seeded("b", 90.0, 1.9), seeded("c", 110.0, 1.1), factory.group("none", seed={})])
    columns = ("rank_by_iter_p50", "rank_by_stability", "rank_balanced")
    assert [tuple(one.seed[name] for name in columns) for one in groups] == [(2, 2, 2), (1, 3, 1), (3, 1, 3), (None, None, None)]


def test_other_ways_to_rank_and_the_latency_winner() -> None:
    groups = list(with_seed_ranks([seeded("a", 100.0, 1.5), seeded("b", 90.0, 1.9), seeded("c", 110.0, 1.1)]))
    assert names(groups, "iter_p50") == ["b", "a", "c"]
    assert names(groups, "stability") == ["c", "a", "b"]
    assert names(groups, "balanced") == ["b", "a", "c"]
    assert rank(groups, "iter_p50").latency_winner == "b"
    with pytest.raises(UsageError, match=r"did you mean 'samples_per_s'\?"):
        rank(groups, "sample_per_s")


rates = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(rates, st.integers(0, 1)), min_size=1, max_size=6))
def test_every_group_has_one_place_and_the_winner_can_win(drawn: list[tuple[list[float], int]]) -> None:
    groups = [group(f"g{number}", values, failed_runs=failed) for number, (values, failed) in enumerate(drawn)]
    found = rank(groups, "throughput")
    assert sorted(place.group for place in found.groups) == sorted(one.group for one in groups)
    assert [place.rank for place in found.groups] == list(range(1, len(groups) + 1))
    able = {place.group for place in found.groups if place.can_win}
    assert (found.winner in able) if able else found.winner is None
    shuffled = rank(groups[::-1], "throughput")
    assert [place.group for place in shuffled.groups] == [place.group for place in found.groups]


def test_the_balanced_rank_is_by_the_sum_of_both_places() -> None:
    """q is second and first, p is first and third, r third and second."""
    groups = with_seed_ranks([seeded("p", 90.0, 1.9), seeded("q", 100.0, 1.1), seeded("r", 110.0, 1.5)])
    assert {group.group: group.seed["rank_balanced"] for group in groups} == {"q": 1, "p": 2, "r": 3}
