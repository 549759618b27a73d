"""Tables as JSON inside a script element: small, and never a way out of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.report.html.encode import cells_of, encoded_column, encoded_tables, script_safe


def test_text_is_words_and_codes() -> None:
    column = encoded_column("run", ["a", "b", None, "a"])
    assert column == {"words": ["a", "b"], "values": [0, 1, None, 0]}


def test_what_is_said_again_is_told_once() -> None:
    column = encoded_column("run", ["a"] * 500 + ["b"] * 700)
    assert column == {"words": ["a", "b"], "runs": [0, 500, 1, 700]}


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("iter_ms", [123.456789, 0.000123456, 98765.4], [123.46, 0.00012346, 98765]),
        ("t_s", [1.23456, 98765.4321, 2.0], [1.235, 98765.432, 2.0]),
        ("step", [123456, 7, None], [123456, 7, None]),
        ("value", [4.0, 5.0, None], [4, 5, None]),
        ("loss", [1.5, float("nan"), float("-inf"), None], [1.5, "NaN", "-Infinity", None]),
        ("loss", [float("nan"), 3.0, 4.0], ["NaN", 3.0, 4.0]),
        ("loss", [3.0, float("inf"), None], [3.0, "Infinity", None]),
        ("counted", [True, False, True], [True, False, True]),
        ("axis_told", [None, True, False], [None, True, False]),
        ("axis_odd", [False, 1, 2], ["false", "1", "2"]),
        ("axis_odd", [True, 0.5, None], ["true", "0.5", None]),
        ("axis_rate", [0.000123456789, 1.0], [0.000123456789, 1.0]),
        ("axis_wait_s", [0.0001, 0.5], [0.0001, 0.5]),
        ("mib_per_s", [0.000123, 12.0], [0.000123, 12.0]),
        ("axis_mixed", [1, "1", True, None], ["1", "1", "true", None]),
        ("nothing", [None, None], [None, None]),
    ],
)
def test_numbers_keep_what_says_something(name: str, values: list[Any], expected: list[Any]) -> None:
    assert cells_of(name, values) == expected


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=40))
def test_texts_come_back(values: list[str | None]) -> None:
    came = cells_of("run", values)
    assert len(came) == len(values)
    assert [(value is None) for value in came] == [(value is None) for value in values]


@given(st.lists(st.one_of(st.none(), st.integers(-(10**9), 10**9)), min_size=1, max_size=60))
def test_whole_numbers_come_back(values: list[int | None]) -> None:
    assert cells_of("n", values) == values


@given(st.text())
def test_no_text_leaves_the_script(text: str) -> None:
    safe = script_safe({"a": text, text: 1})
    assert "<" not in safe and "\u2028" not in safe and "\u2029" not in safe
    assert json.loads(safe) == {"a": text, text: 1}


def test_marks_that_turn_text_around_are_taken_out() -> None:
    table = encoded_tables({"runs": {"run": ["a\u202eb\x1b[31m"], "n": [1]}})["runs"]
    assert table == {"rows": 1, "columns": {"run": {"words": ["ab"], "values": [0]}, "n": {"values": [1]}}}


def test_figures_keep_what_four_digits_are_made_of() -> None:
    tables = encoded_tables({"groups": {"value": [148.148148148]}, "steps": {"iter_ms": [148.148148148]}})
    # Of 148.15 four digits are 148.2, where the table of the page tells 148.1.
    assert tables["groups"]["columns"]["value"] == {"values": [148.148148]}
    assert tables["steps"]["columns"]["iter_ms"] == {"values": [148.15]}


def test_a_table_without_rows_is_left_out() -> None:
    assert encoded_tables({"steps": {}}) == {}
