"""The harness in a folder of its own, which must leave no process behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Harness

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    one = Harness(tmp_path)
    yield one
    one.close()
    assert one.left_behind() == []
