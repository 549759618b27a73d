"""Files that may fail: lines are lost and counted, nobody is harmed."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from seatrial.probe.line_file import LineFile


def test_lines_are_appended_whole(tmp_path):
    path = tmp_path / "deep" / "events.jsonl"
    for part in (["a", "b"], [], ["c"]):
        LineFile(path).write(part)
    assert path.read_text() == "a\nb\nc\n"


def test_a_full_device_loses_lines_and_says_so_once(tmp_path, caplog):
    full = tmp_path / "events.jsonl"
    full.symlink_to("/dev/full")
    file = LineFile(full)
    with caplog.at_level(logging.WARNING):
        file.write(["a", "b"])
        file.write(["c"])
    assert (file.lost_lines, file.last_error) == (3, "[Errno 28] No space left on device")
    assert len(caplog.records) == 1
    assert "training goes on" in caplog.text


def test_a_folder_that_cannot_be_made_loses_lines(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    file = LineFile(tmp_path / "file" / "events.jsonl")
    file.write(["a"])
    assert file.lost_lines == 1
    assert "cannot write" in caplog.text


def test_after_half_a_line_the_next_one_starts_afresh(tmp_path, monkeypatch, caplog):
    path = tmp_path / "events.jsonl"
    file = LineFile(path)
    real_write, calls = os.write, []

    def short_then_full(handle, data):
        calls.append(bytes(data))
        if len(calls) == 1:
            return real_write(handle, data[:3])
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(handle, data)

    monkeypatch.setattr(os, "write", short_then_full)
    file.write(["torn line"])
    file.write(["whole line"])
    assert path.read_text() == "tor\nwhole line\n"
    assert file.lost_lines == 1


def test_training_goes_on_when_the_disk_is_full_and_the_heartbeat_tells(make_probe, lines, caplog):
    lines.run_dir.mkdir()
    (lines.run_dir / "events_rank0.jsonl").symlink_to("/dev/full")
    with make_probe() as probe:
        for _ in range(3):
            with probe.step():
                pass
    assert lines.heartbeats()[-1]["msg"] == "done; 5 event lines lost: [Errno 28] No space left on device"


@pytest.mark.parametrize("closed_before", [True, False])
def test_closing_is_always_allowed(tmp_path, closed_before):
    file = LineFile(tmp_path / "events.jsonl")
    file.write(["a"])
    if closed_before:
        file.close()
    file.close()
    assert (tmp_path / "events.jsonl").read_text() == "a\n"
