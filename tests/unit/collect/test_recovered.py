"""What was kept elsewhere comes back, is written down beside its files, and is told."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from seatrial import files
from seatrial.collect.recovered import recover, recovered_cautions
from seatrial.disk import fallback
from seatrial.disk.append import kept_elsewhere, put_aside

FULL = "No space left on device"


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(fallback.VARIABLE, str(tmp_path / "fallback"))
    (tmp_path / "out" / "mb8_r1" / "attempt-1").mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def attempt(out: Path) -> Path:
    return out / "mb8_r1" / "attempt-1"


def keep(path: Path, data: bytes) -> None:
    assert fallback.keep(path, data, FULL, 0o644)


def test_an_attempt_s_lines_are_merged_and_told(attempt: Path) -> None:
    keep(attempt / "events_rank0.jsonl", b"x" * 12034)
    [one] = recover(attempt)
    assert (one.file, one.bytes, one.merged) == ("events_rank0.jsonl", 12034, True)
    [caution] = recovered_cautions(attempt)
    assert caution.text == (
        "events_rank0.jsonl: 12,034 bytes were kept elsewhere while the disk failed (No space left on device) and merged back."
    )
    assert (caution.kind, caution.subject, caution.numbers) == ("kept_elsewhere", "mb8_r1", {"bytes": 12034, "merged": 1})
    assert recover(attempt) == () and len(recovered_cautions(attempt)) == 1


def test_a_campaign_s_recovery_is_written_where_a_reader_looks(out: Path, attempt: Path) -> None:
    keep(attempt / "stacks" / "rank0.txt", b"one\n")
    keep(out / "run_manifest.tsv", b"two\n")
    assert [one.file for one in recover(out)] == ["mb8_r1/attempt-1/stacks/rank0.txt", "run_manifest.tsv"]
    assert [caution.text.split(":")[0] for caution in recovered_cautions(attempt)] == ["stacks/rank0.txt"]
    assert [(caution.text.split(":")[0], caution.subject) for caution in recovered_cautions(out)] == [("run_manifest.tsv", "")]


def test_what_cannot_be_merged_yet_is_told_with_its_place_until_it_is(attempt: Path) -> None:
    path = attempt / "alarms.jsonl"
    path.symlink_to("/dev/full")
    keep(path, b"one\n")
    kept = kept_elsewhere(path)
    assert [one.merged for one in recover(attempt)] == [False]
    [caution] = recovered_cautions(attempt)
    assert f"could not be merged back yet ({FULL}); they lie in {kept} on " in caution.text and caution.numbers["merged"] == 0
    path.unlink()
    assert [one.merged for one in recover(attempt)] == [True]
    assert [caution.text.endswith("and merged back.") for caution in recovered_cautions(attempt)] == [True]


def test_what_somebody_removed_is_said_to_be_gone(attempt: Path) -> None:
    path = attempt / "alarms.jsonl"
    path.symlink_to("/dev/full")
    keep(path, b"one\n")
    recover(attempt)
    kept = kept_elsewhere(path)
    assert kept
    kept.unlink()
    assert recovered_cautions(attempt)[0].text.endswith(
        f"in {kept}, where they are no longer: somebody removed them, or the host was started anew."
    )


def test_a_whole_file_that_was_written_anew_needs_no_word(attempt: Path) -> None:
    path = attempt / "outcome.json"
    path.mkdir()
    assert put_aside(path, b"{}", OSError(errno.EIO, "bad"))
    assert [one.merged for one in recover(attempt)] == [False]
    path.rmdir()
    assert files.write_json_surely(path, {"outcome": "ok"})
    assert recovered_cautions(attempt) == () and recover(attempt) == ()


def test_when_it_cannot_be_written_down_it_is_the_next_time(attempt: Path) -> None:
    keep(attempt / "a", b"one\n")
    (attempt / "recovered.json").mkdir()
    assert [one.merged for one in recover(attempt)] == [True]
    (attempt / "recovered.json").rmdir()
    assert [one.file for one in recover(attempt)] == ["a"] and len(recovered_cautions(attempt)) == 1


@pytest.mark.parametrize("content", ["", "{}", "[1, {}, null]", '[{"file": 1}]'])
def test_rubbish_tells_nothing(attempt: Path, content: str) -> None:
    (attempt / "recovered.json").write_text(content)
    assert recovered_cautions(attempt) == ()
    keep(attempt / "a", b"one\n")
    recover(attempt)
    assert [one["file"] for one in json.loads((attempt / "recovered.json").read_text())] == ["a"]
