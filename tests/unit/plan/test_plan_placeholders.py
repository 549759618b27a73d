"""Placeholders: what fills them, and that every other text comes through as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.plan.placeholders import PlaceholderProblem, escape, fill, names_in, rename, value_text

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def test_values_are_written_as_a_plan_writes_them() -> None:
    assert fill("{a}/{b}/{c}/{d}/{e}", {"a": 8, "b": 1e-5, "c": True, "d": None, "e": "x y"}) == "8/1e-05/true/null/x y"


def test_doubled_braces_are_braces() -> None:
    assert fill('{{"lr": {lr}}}', {"lr": 0.1}) == '{"lr": 0.1}'
    assert fill("{{{a}}}", {"a": 1}) == "{1}"
    assert names_in("{{a}} {b} {c} {b}") == ["b", "c"]


@pytest.mark.parametrize("text", ["{", "}", "a}", '{"lr": 1}', "{a b}", "{}", "{0}"])
def test_a_lone_brace_is_named(text: str) -> None:
    with pytest.raises(PlaceholderProblem, match="for the brace itself"):
        names_in(text)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(PlaceholderProblem, match=r"nothing is known to fill \{b\} with"):
        fill("{b}", {"a": 1})


@given(st.text())
def test_an_escaped_text_comes_back_whole(text: str) -> None:
    assert fill(escape(text), {}) == text
    assert names_in(escape(text)) == []


@given(st.lists(st.tuples(st.text(), NAMES, st.integers())))
def test_every_placeholder_is_filled_and_nothing_else_changes(pieces: list[tuple[str, str, int]]) -> None:
    values = {name: number for _, name, number in pieces}
    template = "".join(f"{escape(text)}{{{name}}}" for text, name, _ in pieces)

    assert fill(template, values) == "".join(f"{text}{value_text(values[name])}" for text, name, _ in pieces)
    assert names_in(template) == list(dict.fromkeys(name for _, name, _ in pieces))


@given(st.lists(st.tuples(st.text(), NAMES)), NAMES)
def test_renaming_a_placeholder_leaves_the_rest(pieces: list[tuple[str, str]], old: str) -> None:
    template = "".join(f"{escape(text)}{{{name}}}" for text, name in pieces)
    renamed = "".join(f"{escape(text)}{{{'place.ranks' if name == old else name}}}" for text, name in pieces)

    assert rename(template, old, "place.ranks") == renamed
