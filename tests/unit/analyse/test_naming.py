"""Runs in sentences."""

from __future__ import annotations

import pytest

from seatrial.analyse.naming import first_of, num_runs


@pytest.mark.parametrize(("count", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs")])
def test_how_many(count: int, text: str) -> None:
    assert num_runs(count) == text


@pytest.mark.parametrize(
    ("names", "text"), [([], ""), (["a"], "a"), (["a", "b", "c"], "a, b, c"), (["a", "b", "c", "d", "e"], "a, b, c and 2 more")]
)
def test_which(names: list[str], text: str) -> None:
    assert first_of(names) == text


def test_as_many_as_are_wanted() -> None:
    assert first_of(["a", "b"], 1) == "a and 1 more"
