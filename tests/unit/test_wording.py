"""Numbers and names in a sentence."""

from __future__ import annotations

import pytest

from seatrial.wording import MOST_NAMED, count, named, were


@pytest.mark.parametrize(("number", "said"), [(0, "0 runs"), (1, "1 run"), (3, "3 runs")])
def test_one_is_said_otherwise_than_many(number: int, said: str) -> None:
    assert count(number, "run") == said
    assert were(number, "run") == f"{said} {'was' if number == 1 else 'were'}"


def test_names_are_listed_up_to_so_many_and_then_counted() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    assert named([]) == "" and named(["a"]) == "a"
    assert named(names[:MOST_NAMED]) == "a, b, c, d"
    assert named(names) == "a, b, c, d and 2 more" and named(names, 1) == "a and 5 more"
