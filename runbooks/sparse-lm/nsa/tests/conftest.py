"""Prints the reason of a skipped test, also with -q."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.option.reportchars += "s"
