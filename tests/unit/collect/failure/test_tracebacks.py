"""Which lines end a traceback."""

from __future__ import annotations

import pytest

from seatrial.collect.failure.tracebacks import HEAD, is_indented, raised
from seatrial.collect.logs.line_marks import MarkedLine


def of(*lines: str, source: str = "") -> list[MarkedLine]:
    return [MarkedLine(source, line) for line in lines]


def test_no_lines() -> None:
    assert raised([]) == []


@pytest.mark.parametrize("name", ["ValueError: no", "torch.OutOfMemoryError: no", "KeyboardInterrupt", "a.b.PortTakenException: x"])
def test_an_exception_is_known_by_how_its_name_ends(name: str) -> None:
    assert raised(of("step 1", name)) == [False, True]


@pytest.mark.parametrize("name", ["Exception: no", "socket.gaierror: no", "StopAsync"])
def test_behind_a_traceback_any_name_counts(name: str) -> None:
    assert raised(of(name)) == [False]
    assert raised(of(HEAD, '  File "train.py", line 9', "    fail()", name)) == [False, False, False, True]


def test_only_the_first_line_that_is_not_indented_ends_it() -> None:
    assert raised(of(HEAD, "  at it", "nothing to see", "gone: away")) == [False, False, False, False]
    assert raised(of(HEAD, "  at it", "gone: away", "told: again")) == [False, False, True, False]


def test_tracebacks_of_two_ranks_that_stand_among_one_another() -> None:
    lines = [
        *of(HEAD, source="[rank0]:"),
        *of(HEAD, source="[rank1]:"),
        *of("hostile: 0", source="[rank1]:"),
        *of("lost: 1", source="[rank0]:"),
    ]
    assert raised(lines) == [False, False, True, True]


@pytest.mark.parametrize(("text", "indented"), [("", True), ("  x", True), ("\tx", True), ("x", False)])
def test_blank_and_quoted_lines_are_indented(text: str, indented: bool) -> None:
    assert is_indented(text) is indented
