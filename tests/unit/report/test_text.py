"""Numbers and small charts as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.records.measure import Estimate
from seatrial.report import text as numbers
from seatrial.report.terminal import in_encoding
from seatrial.report.text import (
    BLOCKS,
    GAP,
    Scale,
    bar_legend,
    bar_letters,
    can_encode,
    common_scale,
    interval_bar,
    sparkline,
    stacked_bar,
    thinned,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1270.4, "1,270"), (123456.7, "123,457"), (84.213, "84.21"), (1.0, "1.000"), (0.042113, "0.04211"), (0.0, "0"), (None, "–")],
)
def test_four_digits_that_matter(value: float | None, text: str) -> None:
    assert numbers.figure(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_a_dash(value: float) -> None:
    assert (numbers.figure(value), numbers.ratio(value)) == ("–", "–")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(98.0, 102.0, "±2.0 %"), (60.0, 200.0, "±83 %"), (50.0, 200.0, "± over 100 %"), (1.0, 10_000.0, "± over 100 %"), (None, None, "")],
)
def test_margin(low: float | None, high: float | None, text: str) -> None:
    assert numbers.margin(Estimate(mean=100.0, low=low, high=high, n=2)) == text


def test_interval() -> None:
    assert numbers.interval(Estimate(mean=100.0, low=98.0, high=102.04, n=2)) == "98.00 to 102.0"
    assert numbers.interval(Estimate(mean=100.0)) == "–"


def test_what_is_no_number_is_none() -> None:
    odd = (True, "3", None, [], float("nan"), float("inf"))
    assert [numbers.finite_number(value) for value in (1, 2.5, 0, *odd)] == [1, 2.5, 0, *[None] * len(odd)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1270.4, "1,270"), (84.213, "84.2"), (9.876, "9.88"), (0.42, "0.42"), (0.004, "<0.01"), (0.0, "0"), (-0.004, ">-0.01"), (None, "–")],
)
def test_what_a_glance_takes_in(value: float | None, text: str) -> None:
    assert numbers.short_figure(value) == text


@pytest.mark.parametrize(
    ("values", "columns", "scale", "line"),
    [
        ([float(level) for level in range(8)], 8, {}, BLOCKS),
        ([1.0, 2.0], 5, {}, "▁█   "),
        ([1.0, 1.0, 1.0, 9.0] * 100, 10, {}, "▁█▁█▁█▁█▁█"),
        ([float(value) for value in range(80)], 8, {}, "▁▃▃▄▅▆▆█"),
        ([float(value) for value in range(79, -1, -1)], 8, {}, "█▆▆▅▄▃▃▁"),
        ([0.0, 5.0, 10.0, 99.0], 4, {"low": 0.0, "high": 10.0}, "▁▅██"),
        ([], 4, {}, "    "),
        ([1.0], 0, {}, ""),
    ],
)
def test_sparklines(values: list[float], columns: int, scale: dict[str, float], line: str) -> None:
    assert sparkline(values, columns, **scale) == line


def test_a_spike_and_a_dip_among_many_values_stay() -> None:
    values = [10.0] * 1000
    values[333], values[777] = 100.0, 1.0
    line = sparkline(values, 20)
    assert len(line) == 20 and line.count("█") == 1 and line.count("▁") == 1
    assert line.index("█") // 2 == 333 * 10 // 1000 and line.index("▁") // 2 == 777 * 10 // 1000


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0])
def test_what_is_constant_is_flat_in_the_middle(value: float) -> None:
    assert set(sparkline([value] * 30, 10)) <= {"▄", "▅"}


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_a_gap(nothing: float | None) -> None:
    assert sparkline([1.0, nothing, 2.0], 3) == "▁ █"
    assert sparkline([nothing] * 4, 3) == "   "


@given(st.lists(st.one_of(st.none(), st.floats(min_value=-1e12, max_value=1e12)), max_size=300), st.integers(min_value=0, max_value=80))
def test_every_line_has_its_width_and_keeps_both_extremes(values: list[float | None], columns: int) -> None:
    line = sparkline(values, columns)
    assert len(line) == columns and set(line) <= {*BLOCKS, GAP}
    known = [value for value in values if value is not None]
    shown = [value for value in thinned(values, columns) if value is not None]
    if known and columns > 1:
        assert (min(shown), max(shown)) == (min(known), max(known))


def test_an_interval_a_mean_alone_and_nothing() -> None:
    scale = Scale(low=0.0, high=10.0)
    assert interval_bar(Estimate(mean=5.0, low=2.0, high=8.0, n=3), scale, 11) == "  ├──●──┤  "
    assert interval_bar(Estimate(mean=10.0), scale, 11) == "          ●"
    assert interval_bar(None, scale, 11) == " " * 11


def test_a_wild_interval_runs_off_the_scale_and_leaves_the_means_apart() -> None:
    wild, tame = Estimate(mean=100.0, low=1.0, high=10_000.0, n=2), Estimate(mean=110.0, low=109.0, high=111.0, n=5)
    scale = common_scale([wild, tame])
    assert scale is not None and (scale.low, scale.high) == (90.0, 120.0)
    assert interval_bar(wild, scale, 31) == "◂─────────●───────────────────▸"


def test_one_mean_without_an_interval_still_has_a_scale() -> None:
    scale = common_scale([Estimate(mean=100.0)])
    assert scale is not None
    assert interval_bar(Estimate(mean=100.0), scale, 11) == "     ●     "


estimates = st.builds(
    lambda mean, spread: Estimate(mean=mean, low=mean / spread, high=mean * spread, n=3),
    st.floats(min_value=1e-6, max_value=1e9),
    st.floats(min_value=1.0, max_value=1e6),
)


@given(st.lists(estimates, min_size=1, max_size=6), st.integers(min_value=2, max_value=120))
def test_every_line_has_its_width_and_its_dot(known: list[Estimate], columns: int) -> None:
    scale = common_scale(known)
    assert scale is not None and scale.low < scale.high
    for estimate in known:
        line = interval_bar(estimate, scale, columns)
        assert len(line) == columns
        assert line.count("●") == 1


PHASES = ("data_wait", "preprocess", "fwd", "bwd", "step", "other")


def test_a_letter_for_each_and_dots_for_what_has_no_name() -> None:
    letters = bar_letters(PHASES)
    assert letters == {"data_wait": "d", "preprocess": "p", "fwd": "f", "bwd": "b", "step": "s", "other": "."}
    assert bar_legend(letters)["data_wait"] == "d data wait"


def test_letters_that_are_taken_give_way_to_the_next() -> None:
    assert bar_letters(["data", "decode", "d", "ddd"]) == {"data": "d", "decode": "e", "d": "a", "ddd": "b"}
    assert list(bar_letters(["1", "§"]).values()) == ["a", "b"]
    assert len(set(bar_letters([f"x{number}" for number in range(62)]).values())) == 62


def test_parts_are_as_long_as_their_share() -> None:
    assert stacked_bar({"fwd": 1.0, "bwd": 2.0, "step": 1.0}, bar_letters(PHASES), 8) == "ffbbbbss"


def test_a_small_part_is_seen_and_one_that_is_nothing_is_not() -> None:
    assert stacked_bar({"data_wait": 0.001, "fwd": 99.0, "bwd": 0.0, "step": float("nan")}, bar_letters(PHASES), 10) == "dfffffffff"


@given(st.dictionaries(st.sampled_from(PHASES), st.floats(min_value=0.0, max_value=1e9)), st.integers(min_value=1, max_value=100))
def test_every_bar_has_its_width(parts: dict[str, float], columns: int) -> None:
    assert len(stacked_bar(parts, bar_letters(PHASES), columns)) == columns


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("├──●──┤  ◂─●─▸", "ascii", "|--o--|  <-o->"),
        ("▁▂▃▄▅▆▇█", "ascii", "12345678"),
        ("±2.1 %, 3 × 4 – 5…", "ascii", "~2.1 %, 3 x 4 - 5."),
        ("火a", "ascii", "??a"),
        # This encoding has two of the eight blocks, and lines but no dot: a drawing is replaced whole.
        ("▁▄█", "cp437", "148"),
        ("├─●─┤", "cp437", "|-o-|"),
        ("±2 %", "latin-1", "±2 %"),
    ],
)
def test_characters_that_an_encoding_lacks_are_replaced_one_for_one(text: str, encoding: str, shown: str) -> None:
    assert in_encoding(text, encoding) == shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "no-such-encoding"])
def test_the_answer_can_always_be_shown(encoding: str) -> None:
    shown = in_encoding("▁█├●┤±→火\u202e é", encoding)
    assert can_encode(shown, encoding if encoding != "no-such-encoding" else "ascii")
