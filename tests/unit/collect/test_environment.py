"""The variables that the ranks of an attempt got."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.environment import read_variables


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "environment.json"


def test_every_variable_by_its_name(path: Path) -> None:
    path.write_text('{"variables": [{"name": "NCCL_DEBUG", "value": "INFO", "from": "plan"}, {"name": "OMP_NUM_THREADS", "value": ""}]}')
    assert read_variables(path) == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": ""}


@pytest.mark.parametrize("text", [None, "", "{torn", "[]", "[1]", '"x"', "null", "{}", '{"variables": {}}', '{"variables": null}'])
def test_a_file_that_says_nothing_is_none(path: Path, text: str | None) -> None:
    if text is not None:
        path.write_text(text)
    assert read_variables(path) is None


def test_entries_that_are_none_are_passed_over(path: Path) -> None:
    path.write_text(
        '{"variables": [null, 3, {"name": 4, "value": "x"}, {"name": "A"}, {"name": "B", "value": 2}, {"name": "C", "value": "3"}]}'
    )
    assert read_variables(path) == {"C": "3"}
    path.write_text('{"variables": []}')
    assert read_variables(path) == {}
