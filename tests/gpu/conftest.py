"""torch.compile passes through modules of torch that warn, differently in each version: their warnings are shown, not raised."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            # First, so that a test's own filters go before it.
            item.add_marker(pytest.mark.filterwarnings("default:::torch"), append=False)
