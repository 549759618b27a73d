"""Rows are kept for good: torn lines, other writers and bad places lose none."""

from __future__ import annotations

import dataclasses
import errno
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seatrial.core.errors import CampaignError, UsageError
from seatrial.history import rows
from tests.unit.analyse.factory import course, side


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    kept = side("mb16", [100.0, 101.0], run={"loss": course(2.0)}, debug=("NCCL_DEBUG=INFO",))
    assert rows.add(path, kept, now_t=5.0) == rows.Row(number=1, added_t=5.0, compared=kept)
    assert rows.add(path, side("mb8", [90.0])).number == 2
    assert [row.compared.group for row in rows.read_history(path).rows] == ["mb16", "mb8"]
    assert rows.read_history(path).rows[0].compared == kept


def test_the_same_runs_are_one_row_and_run_again_another(tmp_path: Path) -> None:
    path, made = tmp_path / "h.jsonl", side("mb16", [100.0])
    assert [rows.add(path, made).number, rows.add(path, dataclasses.replace(made, name="other name")).number] == [1, 1]
    assert rows.add(path, side("mb16", [100.0], offset_s=9000)).number == 2


def test_names_go_to_the_row_that_was_pinned_last(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    for name in ("a", "b"):
        rows.add(path, side(name, [100.0]))
    assert rows.pin(path, 1, "base").names == ("base",)
    rows.pin(path, 1, "v100-bf16")
    rows.pin(path, 2, "base")
    assert [row.names for row in rows.read_history(path).rows] == [("v100-bf16",), ("base",)]
    found = rows.read_history(path).pinned("base")
    assert found is not None and found.compared.group == "b"
    rows.unpin(path, "base")
    assert rows.read_history(path).pinned("base") is None and rows.pinned_names(path) == ["v100-bf16"]
    assert len(rows.read_history(path).rows) == 2


def test_wrong_names_and_numbers_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    rows.add(path, side("a", [100.0]))
    rows.pin(path, 1, "base")
    with pytest.raises(UsageError, match="no row 7"):
        rows.pin(path, 7, "x")
    for name in ("12", "a:b", "", "../x", "a b"):
        with pytest.raises(UsageError, match="is not a valid row name"):
            rows.pin(path, 1, name)
    with pytest.raises(UsageError, match="did you mean 'base'"):
        rows.unpin(path, "bsae")


def test_torn_and_strange_lines_are_passed_over_and_swallow_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    rows.add(path, side("a", [100.0]))
    whole = path.read_text()
    strange = [
        '{"kind": "row", "row": 9, "side": 3, "added_t": 1}',
        '{"kind": "row", "row": true}',
        "[]",
        '{"kind": "pin", "row": "1", "name": "x"}',
    ]
    path.write_text(whole + "\n".join(strange) + '\n{"v": 1, "kind": "row", "row": 2, "si')
    rows.add(path, side("b", [100.0]))
    rows.pin(path, 2, "base")
    found = rows.read_history(path)
    assert [(row.number, row.compared.group, row.names) for row in found.rows] == [(1, "a", ()), (2, "b", ("base",))]
    assert found.unreadable == 5 and found.unreadable_clause == " (5 lines of it cannot be read)"


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: rows.add(path, side(f"g{at}", [100.0])), range(12)))
    assert sorted(row.number for row in rows.read_history(path).rows) == list(range(1, 13))
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_no_file_is_no_rows(tmp_path: Path) -> None:
    assert rows.read_history(tmp_path / "none.jsonl") == rows.History()


def test_a_place_that_takes_nothing_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CampaignError, match="SEATRIAL_HISTORY"):
        rows.add(tmp_path / "file" / "h.jsonl", side("a", [100.0]))


def test_a_folder_takes_nothing_and_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CampaignError, match="is a folder, so nothing was kept"):
        rows.add(tmp_path / "folder", side("a", [100.0]))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder"]


def test_a_file_that_cannot_be_written_keeps_nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rows.os, "fsync", full)
    with pytest.raises(CampaignError, match="No space left on device, so nothing was kept"):
        rows.add(tmp_path / "h.jsonl", side("a", [100.0]))


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="name another file"):
        rows.read_history(tmp_path)
    assert rows.pinned_names(tmp_path) == []


def test_which_file_is_meant(tmp_path: Path) -> None:
    given = tmp_path / "mine.jsonl"
    assert rows.history_path(given, {"SEATRIAL_HISTORY": "/elsewhere"}) == given
    assert rows.history_path(None, {"SEATRIAL_HISTORY": "/elsewhere/h.jsonl", "XDG_DATA_HOME": "/data"}) == Path("/elsewhere/h.jsonl")
    assert rows.history_path(None, {"XDG_DATA_HOME": "/data"}) == Path("/data/seatrial/history.jsonl")
    assert rows.history_path(None, {}).parts[-4:] == (".local", "share", "seatrial", "history.jsonl")
