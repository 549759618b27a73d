"""`-P` values reach the command as they were typed."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.cli.sweep import parse_axes
from seatrial.errors import UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("bs=8,16", [8, 16]),
        ("x=0.5,true,false,null,sgd", [0.5, True, False, None, "sgd"]),
        ("v=1.10,007,1e3,0x1F,+5,-0", ["1.10", "007", "1e3", "0x1F", "+5", "-0"]),
        ("lr=1e-3,3e-4", ["1e-3", "3e-4"]),
        ("x='8',\"a,b\"", ["8", "a,b"]),
        ("x=[8, 16]", [8, 16]),
    ],
)
def test_values(text: str, values: list[Any]) -> None:
    (found,) = parse_axes([text]).values()
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]


@pytest.mark.parametrize("parameters", [["bs"], ["=8"], ["bs=8", "bs=16"]])
def test_what_is_no_axis_is_said(parameters: list[str]) -> None:
    with pytest.raises(UsageError, match="-P"):
        parse_axes(parameters)
