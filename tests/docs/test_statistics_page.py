"""The thresholds that docs/statistics.md tells are the modules': in its tables, and wherever a number stands before its constant."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
_ROW = re.compile(r"^\| `(?P<name>[A-Z][A-Z0-9_]*)` \| (?P<value>[^|]+) \| `(?P<module>[\w/]+)\.py` \|$", re.MULTILINE)
# `2 % (`LEVEL_TOLERANCE`)`, `8 MiB (`LEAST_GROWTH_MIB`)`: a number, a unit at most, and the constant in brackets.
_CITED = re.compile(r"(?P<number>[−-]?\d+(?:\.\d+)?)(?:\s(?P<unit>%|MiB|min|h))?\s\(`(?P<name>[A-Z][A-Z0-9_]*)`\)")


def sections() -> dict[str, str]:
    """Heading → text below it."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows() -> Iterator[tuple[str, str, str, Any]]:
    """Section, module, constant, and the value that the table gives."""
    for title, text in sections().items():
        for row in _ROW.finditer(text):
            yield title, row["module"], row["name"], ast.literal_eval(row["value"].strip())


def cited() -> Iterator[tuple[str, str, str, str]]:
    """Section, constant, number and unit wherever prose tells one; the page's opening shows how with one of a later part."""
    for title, text in sections().items():
        for found in _CITED.finditer(text):
            yield title, found["name"], found["number"].replace("−", "-"), found["unit"] or ""


@pytest.mark.parametrize(("title", "module", "name", "value"), list(rows()))
def test_a_constant_of_the_page_is_the_modules(title: str, module: str, name: str, value: object) -> None:
    found = getattr(importlib.import_module(f"seatrial.{module.replace('/', '.')}"), name)
    assert found == (pytest.approx(value) if isinstance(value, float) else value), f"{title}: {module}.py has {found!r}"


@pytest.mark.parametrize(("title", "name", "number", "unit"), list(cited()))
def test_a_number_in_the_text_is_its_tables(title: str, name: str, number: str, unit: str) -> None:
    values = [value for section, _, constant, value in rows() if (section, constant) == (title, name)]
    is_share = unit == "%" and not name.endswith("_PCT")
    assert values == [pytest.approx(float(number) / 100 if is_share else float(number))], f"{title}: the table has {values}"


def test_every_part_that_tells_a_threshold_has_a_table() -> None:
    told = {title for title, *_ in cited()}
    assert told <= {title for title, *_ in rows()}
    assert len(told) > 10 and len(list(cited())) > 60, "the pattern no longer finds them"


def test_every_row_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == len(list(rows())), "a row of a table is not `CONSTANT`, a literal and `module.py`"


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
