"""NVML as a test finds it: never the one that an earlier test has started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seatrial.machine.nvml import start_nvml


@pytest.fixture(autouse=True)
def fresh_nvml() -> Iterator[None]:
    start_nvml.cache_clear()
    yield
    start_nvml.cache_clear()
