"""Series drawn as blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.report.sparkline import BLOCKS, GAP, sparkline, thinned


def test_low_to_high_is_the_first_block_to_the_last() -> None:
    assert sparkline([float(level) for level in range(8)], 8) == BLOCKS


def test_fewer_values_than_columns_are_not_stretched() -> None:
    assert sparkline([1.0, 2.0], 5) == "▁█   "


def test_a_spike_and_a_dip_among_many_values_stay() -> None:
    values = [10.0] * 1000
    values[333], values[777] = 100.0, 1.0
    line = sparkline(values, 20)
    assert len(line) == 20 and line.count("█") == 1 and line.count("▁") == 1
    assert line.index("█") // 2 == 333 * 10 // 1000 and line.index("▁") // 2 == 777 * 10 // 1000


def test_what_goes_up_and_down_all_the_time_looks_so() -> None:
    assert sparkline([1.0, 1.0, 1.0, 9.0] * 100, 10) == "▁█▁█▁█▁█▁█"


def test_what_rises_and_falls_is_drawn_in_its_order() -> None:
    slope = [float(value) for value in range(80)]
    assert sparkline(slope, 8) == "▁▃▃▄▅▆▆█" and sparkline(slope[::-1], 8) == "█▆▆▅▄▃▃▁"


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0])
def test_what_is_constant_is_flat_in_the_middle(value: float) -> None:
    assert set(sparkline([value] * 30, 10)) <= {"▄", "▅"}


def test_what_hardly_changes_is_flat_too() -> None:
    assert set(sparkline([100.0, 100.2, 99.9, 100.1], 4)) <= {"▄", "▅"}


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_a_gap(nothing: float | None) -> None:
    assert sparkline([1.0, nothing, 2.0], 3) == "▁ █"
    assert sparkline([nothing] * 4, 3) == "   "


def test_nothing_is_blank() -> None:
    assert sparkline([], 4) == "    " and sparkline([1.0], 0) == ""


def test_a_scale_can_be_given_and_holds_what_is_beyond_it() -> None:
    assert sparkline([0.0, 5.0, 10.0, 99.0], 4, low=0.0, high=10.0) == "▁▅██"


@given(st.lists(st.one_of(st.none(), st.floats(min_value=-1e12, max_value=1e12)), max_size=300), st.integers(min_value=0, max_value=80))
def test_every_line_has_its_width_and_keeps_both_extremes(values: list[float | None], columns: int) -> None:
    line = sparkline(values, columns)
    assert len(line) == columns and set(line) <= {*BLOCKS, GAP}
    known = [value for value in values if value is not None]
    shown = [value for value in thinned(values, columns) if value is not None]
    if known and columns > 1:
        assert (min(shown), max(shown)) == (min(known), max(known))
