"""The lane's mark, and a harness that must leave no process and no shared memory of torch behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MadeOnce, put_first
from tests.harness import Harness
from tests.waiting import wait_until

GONE_WITHIN_S = 60.0
SHARED_MEMORY = Path("/dev/shm")
# A minute or more each.
LONGEST = (
    "test_a_deepspeed_sweep_killed_in_the_middle_goes_on",
    "test_a_killed_training_goes_on_from_its_last_whole_checkpoint",
    "test_an_unauthenticated_flood_keeps_no_agent_out",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.faults)
    put_first(items, LONGEST)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    one = Harness(tmp_path)
    before = own_segments()
    yield one
    one.close()
    wait_until(lambda: not one.left_behind(), f"every process of the campaign ends: {one.left_behind()}", GONE_WITHIN_S)
    assert held_segments(own_segments() - before) == set()


@pytest.fixture
def speech(made_once: MadeOnce) -> Path:
    """A small LibriSpeech tree with its manifest. Read only."""
    return made_once("speech", lambda folder: Harness(folder).run("prepare", "librispeech", "--synthetic", "40", "--output-root", "."))


def own_segments() -> set[str]:
    """Segments in /dev/shm of this user that are named as torch names them."""
    return {entry.name for entry in os.scandir(SHARED_MEMORY) if entry.name.startswith("torch_") and entry.stat().st_uid == os.getuid()}


def held_segments(names: set[str]) -> set[str]:
    """Those left over; another worker of this lane may use its own for a while."""
    wait_until(lambda: not (names & own_segments()), f"{names} are removed from /dev/shm", GONE_WITHIN_S)
    return names & own_segments()
