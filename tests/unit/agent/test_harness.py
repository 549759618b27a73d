"""What the agent asks of whoever gave the order: both kinds of harness, and the one of the tests, have all of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from seatrial.agent.harness import Harness
from seatrial.agent.harness_line import HarnessLine
from seatrial.agent.harness_pipe import HarnessPipe
from tests.unit.agent.apart import FakeHarness

ASKED = [name for name in vars(Harness) if not name.startswith("_")]


def _parameters(function: Callable[..., Any]) -> list[tuple[str, object]]:
    return [(one.name, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("kind", [HarnessPipe, HarnessLine, FakeHarness])
@pytest.mark.parametrize("name", ASKED)
def test_every_word_of_it_is_understood(kind: type, name: str) -> None:
    assert _parameters(getattr(kind, name)) == _parameters(getattr(Harness, name))
    assert inspect.getdoc(getattr(Harness, name)), "each says what is expected of it"
