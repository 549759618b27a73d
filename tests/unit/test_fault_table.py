"""Every row of the fault table has its test."""

from __future__ import annotations

import pytest

from tests.docs.pages import names_a_test
from tests.faults.page import path_of
from tests.faults.table import PARTS

ROWS = [row for part in PARTS for row in part.rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_the_row_s_test_is_there(row) -> None:
    assert "::" in row.test
    assert names_a_test(path_of(row))


def test_no_fault_stands_twice() -> None:
    names = [(part.title, row.fault) for part in PARTS for row in part.rows]
    assert len(names) == len(set(names))
