"""A folder on a disk that can be made to fail, and one elsewhere for what it does not take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.disk.failing_disk import Disk


@pytest.fixture(autouse=True)
def fallback_folder(fallback_folder: Path) -> Path:
    """For every test of this folder."""
    return fallback_folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    one = Disk(home / "a.jsonl")
    monkeypatch.setattr(os, "write", one.write)
    yield one
