"""Every promise of docs/security.md names an existing test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TEXT = PAGE.read_text(encoding="utf-8")
_PROMISE = re.compile(r"^\| (?P<promise>[^|]+) \| `(?P<file>tests/[\w/]+\.py)::(?P<test>\w+)` \|$", re.MULTILINE)
PROMISES = [(found["promise"], found["file"], found["test"]) for found in _PROMISE.finditer(TEXT)]


def test_every_row_of_the_table_is_read() -> None:
    _, _, rest = TEXT.partition("## Promises, and the tests that show them")
    table = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert len(PROMISES) == len(table) - 1 > 25, "a row is not `promise` and `tests/….py::test_name`"


@pytest.mark.parametrize(("promise", "file", "test"), PROMISES)
def test_a_promise_has_its_test(promise: str, file: str, test: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{promise}: {file} has no {test}"
