"""A test that is skipped says why, also with -q."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.option.reportchars += "s"
