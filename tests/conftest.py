"""What tests of several folders have in common: places of their own for what a test would otherwise leave in the machine's, and what
the workers of one lane share.

Marks of xdist's keep no tests together: pytest 9.2 passes over the name that xdist 3.8 gives a test for that. What must not be made twice
or run at the same time is held by locks on files instead, which also hold between two lanes in one folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.stubs.answers import answer

MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this lane see."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def made_once(shared_root: Path) -> MadeOnce:
    """`made_once("small", make)` → the folder `small` as `make(folder)` left it, made by the first worker that needs it. What a `make` that
    failed has left is removed; the folder is made under its own name, since campaigns hold the paths of their files."""

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, is_whole = shared_root / name, shared_root / f"{name}.made"
        with FileLock(shared_root / f"{name}.lock"):
            if not is_whole.exists():
                if folder.exists():
                    shutil.rmtree(folder)
                folder.mkdir()
                make(folder)
                is_whole.touch()
        return folder

    return once


@pytest.fixture
def one_at_a_time(shared_root: Path) -> Iterator[None]:
    """For a test that takes most of the machine: never two of them at once."""
    with FileLock(shared_root / "one_at_a_time.lock"):
        yield


@pytest.fixture
def fallback_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where lines go that cannot be written where they belong; not made yet."""
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "fallback"))
    return tmp_path / "fallback"


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """What the stub of NVML answers from: one GPU, and nothing known of it yet."""
    path = tmp_path / "answers.txt"
    answer(path, ("count", 1))
    return path
