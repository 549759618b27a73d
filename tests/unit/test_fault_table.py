"""Every row of the fault table has its test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.table import PARTS

TESTS = Path(__file__).parents[1]
ROWS = [row for part in PARTS for row in part.rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_the_row_s_test_is_there(row) -> None:
    name, _, function = row.test.partition("::")
    tree = ast.parse((TESTS / (name if "/" in name else f"faults/{name}")).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_fault_stands_twice() -> None:
    names = [(part.title, row.fault) for part in PARTS for row in part.rows]
    assert len(names) == len(set(names))
