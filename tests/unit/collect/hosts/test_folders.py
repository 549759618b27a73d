"""Where the files of each host lie, and which ranks it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.hosts.folders import host_folders, node_names, node_of
from seatrial.paths import AttemptPaths
from seatrial.records.nodes import NodeRecord, NodesRecord


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    return AttemptPaths(tmp_path / "mb8_r1" / "attempt-1")


def record(*names: str, ranks: int = 2) -> NodesRecord:
    return NodesRecord(
        nodes=tuple(
            NodeRecord(name=name, node_rank=at, first_rank=at * ranks, ranks=ranks, clock_offset_s=None) for at, name in enumerate(names)
        )
    )


def test_a_run_on_one_host_has_one_folder_without_a_name(attempt: AttemptPaths) -> None:
    (only,) = host_folders(attempt, None)
    assert (only.name, only.paths.folder, only.offset_s) == ("", attempt.folder, 0.0) and node_names(attempt) == []


def test_the_first_host_lies_in_the_attempt_itself_and_the_others_below_it(attempt: AttemptPaths) -> None:
    found = host_folders(attempt, record("a", "b"))
    assert [(one.name, one.paths.folder) for one in found] == [("a", attempt.folder), ("b", attempt.node("b").folder)]


@pytest.mark.parametrize("name", ["", "..", ".", "x/../../y", "a\0b"])
def test_a_damaged_record_leads_nowhere_else(attempt: AttemptPaths, name: str) -> None:
    assert [one.name for one in host_folders(attempt, record("a", name))] == ["a"]


def test_without_a_record_the_folders_tell_who_was_there(attempt: AttemptPaths) -> None:
    for name in ("b", "a", "c"):
        attempt.node(name).folder.mkdir(parents=True)
    for name in ("b", "c"):
        attempt.node(name).launcher_log.touch()
    (attempt.nodes / "file").touch()
    assert node_names(attempt) == ["a", "b", "c"]
    assert [(one.name, one.paths.folder == attempt.folder) for one in host_folders(attempt, None)] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]


def test_a_rank_ran_on_the_host_whose_ranks_hold_it() -> None:
    nodes = record("a", "b")
    found = [node_of(nodes, rank) for rank in (0, 1, 2, 4, -1)]
    assert [one.name if one else None for one in found] == ["a", "a", "b", None, None] and node_of(None, 0) is None
