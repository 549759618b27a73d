"""What `states` takes for a fact that stands in a text."""

from __future__ import annotations

import pytest

from tests.facts import states


@pytest.mark.parametrize(
    ("text", "facts", "whether"),
    [
        ("rank 1 is at step 40", ("rank 1", 40), True),
        ("rank 1 is at step 40", (40, "rank 1"), False),
        ("rank 11 is at step 40", ("rank 1",), False),
        ("110 MiB", ("10 MiB",), False),
        ("set a=1,\nor --b", ("a=1", "--b"), True),
    ],
)
def test_facts_are_whole_and_in_order(text: str, facts: tuple[object, ...], whether: bool) -> None:
    assert states(text, *facts) == whether
