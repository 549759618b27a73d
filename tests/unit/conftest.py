"""Fixtures of several folders of the unit ring."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def harness_version(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the version that the harness reports to its nodes."""

    def set_to(version: str) -> None:
        from seatrial.core.control_connection import server

        monkeypatch.setattr(server, "__version__", version)

    return set_to
