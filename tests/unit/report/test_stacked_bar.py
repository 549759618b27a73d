"""Parts of a whole drawn as letters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seatrial.report.stacked_bar import legend, letters_of, stacked_bar

PHASES = ("data_wait", "preprocess", "fwd", "bwd", "step", "other")


def test_a_letter_for_each_and_dots_for_what_has_no_name() -> None:
    letters = letters_of(PHASES)
    assert letters == {"data_wait": "d", "preprocess": "p", "fwd": "f", "bwd": "b", "step": "s", "other": "."}
    assert legend(letters)["data_wait"] == "d data wait"


def test_letters_that_are_taken_give_way_to_the_next() -> None:
    assert letters_of(["data", "decode", "d", "ddd"]) == {"data": "d", "decode": "e", "d": "a", "ddd": "b"}
    assert list(letters_of(["1", "§"]).values()) == ["a", "b"]
    assert len(set(letters_of([f"x{number}" for number in range(62)]).values())) == 62


def test_parts_are_as_long_as_their_share() -> None:
    assert stacked_bar({"fwd": 1.0, "bwd": 2.0, "step": 1.0}, letters_of(PHASES), 8) == "ffbbbbss"


def test_a_small_part_is_seen_and_one_that_is_nothing_is_not() -> None:
    assert stacked_bar({"data_wait": 0.001, "fwd": 99.0, "bwd": 0.0, "step": float("nan")}, letters_of(PHASES), 10) == "dfffffffff"


def test_nothing_is_blank() -> None:
    assert stacked_bar({}, letters_of(PHASES), 4) == "    " and stacked_bar({"fwd": 1.0}, letters_of(PHASES), 0) == ""


@given(st.dictionaries(st.sampled_from(PHASES), st.floats(min_value=0.0, max_value=1e9)), st.integers(min_value=1, max_value=100))
def test_every_bar_has_its_width(parts: dict[str, float], columns: int) -> None:
    assert len(stacked_bar(parts, letters_of(PHASES), columns)) == columns
