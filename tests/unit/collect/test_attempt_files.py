"""Files of an attempt: bounded reads, clocks that go back, environment, host folders, files recovered after a disk failure."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.collect.attempt_files import read_environment, recover_files, recovered_cautions
from seatrial.collect.logs.bounded_lines import bounded_lines, line_blocks, lines_with
from seatrial.core import fallback
from seatrial.core.durable_writes import write_json_durably
from seatrial.core.fallback import FALLBACK_DIR, fallback_entry, spill_file
from seatrial.core.files import write_json
from seatrial.core.paths import AttemptPaths, RunPaths
from seatrial.core.subsequence import longest_non_decreasing
from seatrial.core.text import MIB
from seatrial.records.codec import to_json
from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.outcome import Resumption
from seatrial.records.stored import earlier_attempts, host_folders, node_names, node_of_rank


def test_whole_lines_of_both_ends_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [b"line %03d\n" % number for number in range(100)]
    path.write_bytes(b"".join(lines))
    found = list(bounded_lines(path, 100))
    assert [piece.text for piece in found if piece.part == 0] == lines[:5]
    assert [piece.text for piece in found if piece.part == 1] == lines[-5:]
    data = path.read_bytes()
    assert all(data[piece.start :].startswith(piece.text) for piece in found)


def test_a_line_without_end_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 25 + b"\nend\n")
    found = [(piece.text, piece.begins) for piece in bounded_lines(path, 1000, longest=10)]
    assert found == [(b"x" * 10, True), (b"x" * 10, False), (b"x" * 5 + b"\n", False), (b"end\n", True)]


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300), most=st.integers(2, 400), longest=st.integers(1, 50))
def test_pieces_are_parts_of_the_file(tmp_path_factory: pytest.TempPathFactory, data: bytes, most: int, longest: int) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    path.write_bytes(data)
    found = list(bounded_lines(path, most, longest))
    assert all(data[piece.start : piece.start + len(piece.text)] == piece.text for piece in found)
    if len(data) <= most:
        assert b"".join(piece.text for piece in found) == data


def test_blocks_end_with_a_line_and_hold_all_of_it() -> None:
    text = b"".join(b"line %d\n" % number for number in range(20)) + b"unfinished"
    found = list(line_blocks(io.BytesIO(text), len(text), 10))
    assert b"".join(found) == text and all(block.endswith(b"\n") for block in found[:-1])
    assert list(line_blocks(io.BytesIO(b""), 0, 10)) == []


def test_blocks_begin_at_the_position_and_end_at_most_a_line_beyond_their_end() -> None:
    source = io.BytesIO(b"one\ntwo\nthree\nfour\n")
    source.seek(4)
    assert list(line_blocks(source, 10, 100)) == [b"two\nthree\n"]


def test_a_line_without_end_does_not_make_a_block_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.collect.logs.bounded_lines.LONGEST_LINE_BYTES", 5)
    found = list(line_blocks(io.BytesIO(b"x" * 100), 100, 10))
    assert {len(block) for block in found[:-1]} == {15} and b"".join(found) == b"x" * 100


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=12))
def test_no_non_decreasing_subsequence_is_longer(values: list[int]) -> None:
    places = longest_non_decreasing(values)
    kept = [values[place] for place in places]
    assert places == sorted(places) and kept == sorted(kept)
    lengths: list[int] = []
    for at, value in enumerate(values):
        lengths.append(1 + max((lengths[before] for before in range(at) if values[before] <= value), default=0))
    assert len(kept) == max(lengths, default=0)


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        (
            '{"variables": [{"name": "NCCL_DEBUG", "value": "INFO", "from": "plan"}, {"name": "A", "value": ""}]}',
            {"NCCL_DEBUG": "INFO", "A": ""},
        ),
        (
            '{"variables": [null, 3, {"name": 4, "value": "x"}, {"name": "A"}, {"name": "B", "value": 2}, {"name": "C", "value": "3"}]}',
            {"C": "3"},
        ),
        ('{"variables": []}', {}),
        ('{"variables": {}}', None),
        ("[1]", None),
        ("{torn", None),
    ],
)
def test_environment_variables_without_malformed_entries(tmp_path: Path, text: str, variables: dict[str, str] | None) -> None:
    (tmp_path / "environment.json").write_text(text)
    assert read_environment(tmp_path / "environment.json") == variables
    assert read_environment(tmp_path / "missing.json") is None


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    return AttemptPaths(tmp_path / "mb8_r1" / "attempt-1")


def test_attempts_in_between_with_other_settings_are_not_of_the_same_training(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "mb8_r1")
    for number, hash in enumerate(("a", "b", "a", "a"), start=1):
        write_json(run.attempt(number).spec, {"hash": hash})
    write_json(run.attempt(4).resume, to_json(Resumption(from_attempt=1, step=10)))
    assert [one.number for one in earlier_attempts(run.attempt(4))] == [1, 3]


def record(*names: str, ranks: int = 2) -> NodesRecord:
    return NodesRecord(
        nodes=tuple(
            NodeRecord(name=name, node_rank=at, first_rank=at * ranks, ranks=ranks, clock_offset_s=None) for at, name in enumerate(names)
        )
    )


def test_a_run_on_one_host_has_one_folder_without_a_name(attempt: AttemptPaths) -> None:
    (only,) = host_folders(attempt, None)
    assert (only.name, only.paths.folder, only.offset_s) == ("", attempt.folder, 0.0) and node_names(attempt) == []


@pytest.mark.parametrize("name", ["", "..", ".", "x/../../y", "a\0b"])
def test_a_damaged_record_does_not_lead_out_of_the_attempt(attempt: AttemptPaths, name: str) -> None:
    assert [one.name for one in host_folders(attempt, record("a", name))] == ["a"]


def test_without_a_record_the_folders_show_the_hosts(attempt: AttemptPaths) -> None:
    for name in ("b", "a", "c"):
        attempt.node(name).folder.mkdir(parents=True)
    for name in ("b", "c"):
        attempt.node(name).launcher_log.touch()
    (attempt.nodes / "file").touch()
    assert node_names(attempt) == ["a", "b", "c"]
    found = host_folders(attempt, None)
    assert [(one.name, one.paths.folder == attempt.folder) for one in found] == [("a", True), ("b", False), ("c", False)]


def test_the_host_of_a_rank() -> None:
    nodes = record("a", "b")
    found = [node_of_rank(nodes, rank) for rank in (0, 1, 2, 4, -1)]
    assert [one.name if one else None for one in found] == ["a", "a", "b", None, None] and node_of_rank(None, 0) is None


FULL = "No space left on device"


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FALLBACK_DIR, str(tmp_path / "fallback"))
    (tmp_path / "out" / "mb8_r1" / "attempt-1").mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def attempt_folder(out: Path) -> Path:
    return out / "mb8_r1" / "attempt-1"


def keep(path: Path, data: bytes) -> None:
    assert fallback.spill_bytes(path, data, FULL, 0o644)


def test_lines_of_an_attempt_are_merged_back_and_reported(attempt_folder: Path) -> None:
    keep(attempt_folder / "events_rank0.jsonl", b"x" * 12034)
    [one] = recover_files(attempt_folder)
    assert (one.file, one.bytes, one.merged) == ("events_rank0.jsonl", 12034, True)
    [caution] = recovered_cautions(attempt_folder)
    assert (caution.kind, caution.subject, caution.numbers) == ("kept_elsewhere", "mb8_r1", {"bytes": 12034, "merged": 1})
    assert recover_files(attempt_folder) == () and len(recovered_cautions(attempt_folder)) == 1


def test_recovery_is_recorded_in_the_attempt_it_belongs_to(out: Path, attempt_folder: Path) -> None:
    keep(attempt_folder / "stacks" / "rank0.txt", b"one\n")
    keep(out / "run_manifest.tsv", b"two\n")
    assert [one.file for one in recover_files(out)] == ["mb8_r1/attempt-1/stacks/rank0.txt", "run_manifest.tsv"]
    assert [caution.text.split(":")[0] for caution in recovered_cautions(attempt_folder)] == ["stacks/rank0.txt"]
    assert [(caution.text.split(":")[0], caution.subject) for caution in recovered_cautions(out)] == [("run_manifest.tsv", "")]


def test_what_cannot_be_merged_yet_is_reported_with_its_place_until_it_is(attempt_folder: Path) -> None:
    path = attempt_folder / "alarms.jsonl"
    path.symlink_to("/dev/full")
    keep(path, b"one\n")
    kept = fallback_entry(path)
    assert [one.merged for one in recover_files(attempt_folder)] == [False]
    [caution] = recovered_cautions(attempt_folder)
    assert FULL in caution.text and str(kept) in caution.text and caution.numbers["merged"] == 0
    path.unlink()
    assert [one.merged for one in recover_files(attempt_folder)] == [True]
    assert [caution.numbers["merged"] for caution in recovered_cautions(attempt_folder)] == [1]


def test_a_removed_fallback_entry_is_reported_as_gone(attempt_folder: Path) -> None:
    path = attempt_folder / "alarms.jsonl"
    path.symlink_to("/dev/full")
    keep(path, b"one\n")
    recover_files(attempt_folder)
    kept = fallback_entry(path)
    assert kept
    kept.unlink()
    assert f"{kept}, which is gone" in recovered_cautions(attempt_folder)[0].text


def test_a_whole_file_that_was_rewritten_needs_no_caution(attempt_folder: Path) -> None:
    path = attempt_folder / "outcome.json"
    path.mkdir()
    assert spill_file(path, b"{}", "bad")
    assert [one.merged for one in recover_files(attempt_folder)] == [False]
    path.rmdir()
    assert write_json_durably(path, {"outcome": "ok"})
    assert recovered_cautions(attempt_folder) == () and recover_files(attempt_folder) == ()


def test_a_recovery_that_cannot_be_recorded_is_recorded_the_next_time(attempt_folder: Path) -> None:
    keep(attempt_folder / "a", b"one\n")
    (attempt_folder / "recovered.json").mkdir()
    assert [one.merged for one in recover_files(attempt_folder)] == [True]
    (attempt_folder / "recovered.json").rmdir()
    assert [one.file for one in recover_files(attempt_folder)] == ["a"] and len(recovered_cautions(attempt_folder)) == 1


def test_what_another_campaign_kept_is_named_once_and_gets_no_folder(out: Path) -> None:
    fallback.identify_campaign(out, adopted=False)
    keep(out / "mb16_r1" / "attempt-1" / "a", b"one\n")
    kept = fallback_entry(out / "mb16_r1" / "attempt-1" / "a")
    (out / fallback.IDENTITY).unlink()
    fallback.identify_campaign(out, adopted=False)
    assert [one.foreign for one in recover_files(out)] == [True]
    [caution] = recovered_cautions(out)
    assert "another campaign" in caution.text and str(kept) in caution.text and not (out / "mb16_r1").exists()
    assert kept is not None
    kept.unlink()
    assert recovered_cautions(out) == (), "the user has removed it"


@pytest.mark.parametrize("content", ["{}", '[1, null, {"file": 1}]'])
def test_a_damaged_record_is_replaced(attempt_folder: Path, content: str) -> None:
    (attempt_folder / "recovered.json").write_text(content)
    assert recovered_cautions(attempt_folder) == ()
    keep(attempt_folder / "a", b"one\n")
    recover_files(attempt_folder)
    assert [one["file"] for one in json.loads((attempt_folder / "recovered.json").read_text())] == ["a"]


@pytest.mark.parametrize("largest", [10**9, 4 * MIB, 3 * MIB + 17])
def test_lines_with_a_keyword_are_those_of_all_lines_that_have_one(tmp_path: Path, largest: int) -> None:
    chooser = random.Random(largest)
    texts = (b"step 1 loss 2\n", b"[rank3]: loss 2\r[rank3]: loss 1\n", b"NCCL INFO\n", b"\n", b"x" * 70_000 + b"\n", b"loss " * 9 + b"\n")
    log = tmp_path / "log"
    log.write_bytes(b"".join(chooser.choices(texts, k=800)) * 2 + b"loss without an end")
    found = list(lines_with(log, largest, (b"tep", b"oss")))
    assert found == [piece for piece in bounded_lines(log, largest) if b"tep" in piece.text or b"oss" in piece.text]
    assert len({piece.part for piece in found}) == (1 if largest > log.stat().st_size else 2)
