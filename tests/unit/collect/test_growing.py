"""Which of many readings of a clock are to be believed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.collect.growing import longest_growing


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=12))
def test_the_longest_growing_part_never_falls_and_none_is_longer(values: list[int]) -> None:
    places = longest_growing(values)
    kept = [values[place] for place in places]
    assert places == sorted(places) and kept == sorted(kept)
    lengths: list[int] = []
    for at, value in enumerate(values):
        lengths.append(1 + max((lengths[before] for before in range(at) if values[before] <= value), default=0))
    assert len(kept) == max(lengths, default=0)
