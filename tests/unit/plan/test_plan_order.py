"""The order of runs: fair rounds, the same for the same seed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from seatrial.plan.order import ordered

COUNTS = st.integers(min_value=1, max_value=12)
SEEDS = st.integers()


@given(COUNTS, COUNTS, SEEDS)
def test_every_round_holds_every_group_once(groups: int, repeats: int, seed: int) -> None:
    runs = ordered(range(groups), repeats, "interleaved", seed)

    assert Counter(runs) == Counter((group, repeat) for group in range(groups) for repeat in range(1, repeats + 1))
    rounds = [runs[start : start + groups] for start in range(0, len(runs), groups)]
    assert [{repeat for _, repeat in one_round} for one_round in rounds] == [{repeat} for repeat in range(1, repeats + 1)]
    assert all(sorted(group for group, _ in one_round) == list(range(groups)) for one_round in rounds)


@given(COUNTS, COUNTS, SEEDS)
def test_a_seed_gives_one_order_and_more_repeats_leave_it(groups: int, repeats: int, seed: int) -> None:
    once = ordered(range(groups), repeats, "interleaved", seed)
    more = ordered(range(groups), repeats + 2, "interleaved", seed)

    assert once == ordered(range(groups), repeats, "interleaved", seed)
    assert more[: len(once)] == once


def test_seeds_and_rounds_differ() -> None:
    orders = {tuple(group for group, _ in ordered(range(20), 1, "interleaved", seed)) for seed in range(10)}
    assert len(orders) == 10

    runs = [group for group, _ in ordered(range(20), 2, "interleaved", 0)]
    assert runs[:20] != runs[20:]


def test_nested_runs_all_repeats_of_a_group_in_a_row() -> None:
    assert ordered("ab", 2, "nested", 5) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
