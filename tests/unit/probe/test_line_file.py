"""Files that may fail: their lines go elsewhere, or are lost and counted; nobody is harmed."""

from __future__ import annotations

import logging
import os

import pytest

from seatrial.disk.merging import merge_back
from seatrial.probe.line_file import LineFile

NO_SPACE = "No space left on device"


@pytest.fixture
def no_elsewhere(tmp_path, monkeypatch):
    """A file stands where the fallback's folder would have to be made."""
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "taken" / "fallback"))


@pytest.fixture
def full(tmp_path):
    """A file on a disk that is full, and what frees it again."""
    path = tmp_path / "events.jsonl"
    path.symlink_to("/dev/full")
    return path


def test_lines_are_appended_whole(tmp_path):
    path = tmp_path / "deep" / "events.jsonl"
    for part in (["a", "b"], [], ["c"]):
        LineFile(path).write(part)
    assert path.read_text() == "a\nb\nc\n"


def test_lines_that_a_full_disk_refuses_are_kept_and_come_back(tmp_path, full, caplog):
    file = LineFile(full)
    with caplog.at_level(logging.WARNING):
        file.write(["a", "b"])
        file.write(["c"])
    file.close()
    assert file.lost_lines == 0
    assert NO_SPACE in file.remark("event")
    assert file.remark("event").startswith("some event lines had to go elsewhere")
    assert [record.getMessage().count("kept elsewhere") for record in caplog.records] == [1], "said once"
    full.unlink()
    (merged,) = merge_back(tmp_path)
    assert (merged.file, merged.merged) == ("events.jsonl", True)
    assert full.read_text() == "a\nb\nc\n"


@pytest.mark.usefixtures("no_elsewhere")
def test_without_an_elsewhere_lines_are_lost_counted_and_said_once(full, caplog):
    file = LineFile(full)
    with caplog.at_level(logging.WARNING):
        file.write(["a", "b"])
        file.write(["c"])
    assert file.lost_lines == 3
    assert file.remark("event").startswith("3 event lines lost")
    assert NO_SPACE in file.remark("event")
    assert len(caplog.records) == 1
    assert "training goes on, its measurements are being lost" in caplog.text


@pytest.mark.usefixtures("no_elsewhere")
def test_a_folder_that_cannot_be_made_loses_lines(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    file = LineFile(tmp_path / "file" / "events.jsonl")
    file.write(["a"])
    assert file.lost_lines == 1
    assert "cannot write" in caplog.text


def test_all_is_well_until_something_is_not(tmp_path):
    file = LineFile(tmp_path / "events.jsonl")
    file.write(["a"])
    assert (file.remark("event"), file.lost_lines, file.last_error) == ("", 0, "")


def test_a_forked_child_writes_nothing_and_leaves_the_file_open(tmp_path):
    file = LineFile(tmp_path / "events.jsonl")
    file.write(["parent"])
    child = os.fork()
    if child == 0:
        file.write(["child"])
        file.close()
        os._exit(file.lost_lines)
    assert os.waitpid(child, 0)[1] == 0
    file.write(["parent again"])
    assert (tmp_path / "events.jsonl").read_text() == "parent\nparent again\n"


@pytest.mark.usefixtures("no_elsewhere")
def test_training_goes_on_when_nothing_can_be_written_and_the_heartbeat_tells(make_probe, lines, caplog):
    message = _last_heartbeat_on_a_full_disk(make_probe, lines)
    assert message.startswith("done; 5 event lines lost")
    assert NO_SPACE in message


def test_training_goes_on_while_the_disk_is_full_and_no_step_is_missing(make_probe, lines, caplog):
    message = _last_heartbeat_on_a_full_disk(make_probe, lines)
    assert message.startswith("done; some event lines had to go elsewhere")
    (lines.run_dir / "events_rank0.jsonl").unlink()
    assert [entry.merged for entry in merge_back(lines.run_dir)] == [True]
    assert [event["kind"] for event in lines.events()] == ["start", "step", "step", "step", "stop"]


def _last_heartbeat_on_a_full_disk(make_probe, lines) -> str:
    lines.run_dir.mkdir()
    (lines.run_dir / "events_rank0.jsonl").symlink_to("/dev/full")
    with make_probe() as probe:
        for _ in range(3):
            with probe.step():
                pass
    return lines.heartbeats()[-1]["msg"]


@pytest.mark.parametrize("closed_before", [True, False])
def test_closing_is_always_allowed(tmp_path, closed_before):
    file = LineFile(tmp_path / "events.jsonl")
    file.write(["a"])
    if closed_before:
        file.close()
    file.close()
    assert (tmp_path / "events.jsonl").read_text() == "a\n"
