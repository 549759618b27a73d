"""Contexts that one hook of a trainer opens and another closes."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.probe.contexts import NOTHING
from seatrial.probe.open_parts import OpenParts


class Part:
    """A context that writes down what is done to it."""

    def __init__(self, name: str, done: list[str]) -> None:
        self._name, self._done = name, done

    def __enter__(self) -> Part:
        self._done.append(f"+{self._name}")
        return self

    def __exit__(self, *error: object) -> None:
        assert error == (None, None, None)
        self._done.append(f"-{self._name}")


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
def parts(done: list[str]) -> OpenParts:
    made = OpenParts()
    for name in ("step", "fwd"):
        part: Any = Part(name, done)
        made.enter(name, part)
    return made


def test_what_is_entered_is_open_until_it_is_left(parts: OpenParts, done: list[str]) -> None:
    assert "step" in parts and "bwd" not in parts
    parts.leave("fwd", "step")
    assert done == ["+step", "+fwd", "-fwd", "-step"], "in the order they are named"
    assert "step" not in parts


def test_what_is_not_open_cannot_be_left_twice(parts: OpenParts, done: list[str]) -> None:
    parts.leave("fwd", "fwd", "never")
    assert done.count("-fwd") == 1


def test_what_is_forgotten_is_never_closed(parts: OpenParts, done: list[str]) -> None:
    parts.forget("fwd", "never")
    assert "fwd" not in parts and "step" in parts
    parts.forget()
    parts.leave("step", "fwd")
    assert done == ["+step", "+fwd"]


def test_a_silent_probes_part_is_one_too() -> None:
    parts = OpenParts()
    parts.enter("step", NOTHING)
    assert "step" in parts
    parts.leave("step")
    assert "step" not in parts
