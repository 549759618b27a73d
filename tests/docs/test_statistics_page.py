"""The thresholds that docs/statistics.md cites are those of the modules it names in the same section."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
# `2 % (`LEVEL_TOLERANCE`)`, `8 MiB (`MIN_GROWTH_MIB`)`: a number, a unit at most, and the constant in brackets.
_CITED = re.compile(r"(?P<number>[−-]?\d+(?:\.\d+)?)(?:\s+(?P<unit>%|MiB|min|h))?\s+\(`(?P<name>[A-Z][A-Z0-9_]*)`\)")
_MODULE = re.compile(r"`((?:analyse|judge|records)/\w+)\.py`")


def sections() -> dict[str, str]:
    """Heading → text below it."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def cited() -> Iterator[tuple[str, str, float]]:
    """Section, constant and the value in the text; a percentage is a share unless the constant is in percent."""
    for title, text in sections().items():
        for found in _CITED.finditer(text):
            is_share = found["unit"] == "%" and not found["name"].endswith("_PCT")
            yield title, found["name"], float(found["number"].replace("−", "-")) / (100 if is_share else 1)


@pytest.mark.parametrize(("title", "name", "value"), list(cited()))
def test_a_number_is_its_constant(title: str, name: str, value: float) -> None:
    modules = [importlib.import_module(f"seatrial.{module.replace('/', '.')}") for module in _MODULE.findall(sections()[title])]
    found = [getattr(module, name) for module in modules if hasattr(module, name)]
    assert pytest.approx(value) in found, f"{title}: the modules have {found}"


def test_every_constant_in_the_text_has_its_number() -> None:
    named = [name for text in sections().values() for name in re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", text)]
    assert sorted(named) == sorted(name for _, name, _ in cited() if "_" in name)
    assert len(named) > 60


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
