"""The references of docs/statistics.md are numbered in order and all cited."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"


def test_references_are_numbered_as_they_are_cited() -> None:
    text = PAGE.read_text(encoding="utf-8")
    body, _, listed = text.partition("## References")
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", listed, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    used: set[int] = set()
    for first, last in re.findall(r"\[(\d+)(?:–(\d+))?(?:, \d+)?\]", body):
        used |= set(range(int(first), int(last or first) + 1))
    used |= {int(second) for second in re.findall(r"\[\d+, (\d+)\]", body)}
    assert used == set(numbers)
