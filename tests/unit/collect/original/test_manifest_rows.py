"""Manifests, the original driver's of any version and ours, in any state."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.collect.original.manifest_rows import Row, by_run, counting_rows, is_original_manifest, newest, read_manifest
from seatrial.collect.original.manifests import read_manifests
from tests.original_campaign import MANIFEST_COLUMNS, OLD_COLUMNS, OriginalAttempt, sweep_run, write_original_campaign

RUNS = (sweep_run(0, 128), sweep_run(0, 160, attempts=(OriginalAttempt(status="failed", exit_code=1), OriginalAttempt())))
NAMES = [("sweep_z0_mb128_nw6_pf4_r1", True), ("sweep_z0_mb160_nw6_pf4_r1", False), ("sweep_z0_mb160_nw6_pf4_r1", True)]


def told(folder: Path) -> list[tuple[str, bool]]:
    return [(row.run, row.is_success) for row in read_manifests(folder).rows]


@pytest.mark.parametrize("odd", [{}, {"crlf": True}, {"bom": True}, {"crlf": True, "bom": True}])
def test_every_row_in_the_order_of_the_file(tmp_path: Path, odd: dict[str, bool]) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, **odd))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES and found.cautions == ()
    first = found.rows[0]
    assert (first.exit_code, first.duration_s, first.cells["mode"], first.cells["host_telemetry_empty_flag"]) == (
        0,
        185.0,
        "sweep",
        "false",
    )


def test_a_torn_last_line_is_passed_over_and_told(tmp_path: Path) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, torn_line=True))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES
    assert found.cautions[0].numbers == {"rows": 1} and "torn" in found.cautions[0].text


def test_a_row_glued_to_a_torn_one_is_read(tmp_path: Path) -> None:
    manifest = write_original_campaign(tmp_path, *RUNS, torn_line=True) / "run_manifest.tsv"
    whole = manifest.read_text().splitlines()[1]
    manifest.write_text(manifest.read_text() + whole + "\n")
    assert told(tmp_path) == [*NAMES, NAMES[0]]
    found = read_manifests(tmp_path)
    assert found.rows[-1].cells["mode"] == "sweep" and found.cautions[0].numbers == {"rows": 1}, "the torn one is counted all the same"


def test_fewer_columns_in_another_order(tmp_path: Path) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, columns=OLD_COLUMNS))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES
    assert set(found.rows[0].cells) == set(OLD_COLUMNS)
    assert "47 of its 60 columns" in found.cautions[0].text


def test_a_manifest_that_was_set_aside_comes_first(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, RUNS[0], backup_rows=[sweep_run(1, 192)])
    assert told(tmp_path) == [("sweep_z1_mb192_nw6_pf4_r1", True), NAMES[0]]


def test_a_second_header_holds_from_there_on(tmp_path: Path) -> None:
    write_original_campaign(tmp_path / "new", RUNS[0])
    old = (write_original_campaign(tmp_path / "old", RUNS[1], columns=OLD_COLUMNS) / "run_manifest.tsv").read_text()
    manifest = tmp_path / "new" / "run_manifest.tsv"
    manifest.write_text(manifest.read_text() + old)
    assert told(tmp_path / "new") == NAMES


def test_a_lost_header_is_that_of_the_driver(tmp_path: Path) -> None:
    manifest = write_original_campaign(tmp_path, *RUNS) / "run_manifest.tsv"
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[1:]))
    assert told(tmp_path) == NAMES and "lost its header" in read_manifests(tmp_path).cautions[0].text


@pytest.mark.parametrize("group", ["../../etc", "a/b", "", ".hidden", "x" * 300])
def test_a_name_that_is_no_folder_is_passed_over(tmp_path: Path, group: str) -> None:
    (tmp_path / "run_manifest.tsv").write_text(f"group\trepeat\tstatus\n{group}\t1\tsuccess\ngood\t2\tfailed\n")
    assert told(tmp_path) == [("good_r2", False)]


@pytest.mark.parametrize("repeat", ["0", "-1", "x", "nan", "1e99", ""])
def test_a_repeat_that_cannot_be_is_passed_over(tmp_path: Path, repeat: str) -> None:
    (tmp_path / "run_manifest.tsv").write_text(f"group\trepeat\tstatus\ngood\t{repeat}\tsuccess\n")
    assert told(tmp_path) == []


def test_success_beside_a_bad_exit_code_is_none(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(OriginalAttempt(exit_code=3),)))
    assert told(tmp_path) == [("sweep_z0_mb128_nw6_pf4_r1", False)]


def test_what_is_no_manifest_is_told(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.tsv").write_bytes(b"\x00\xff\x00 not a table\n")
    found = read_manifests(tmp_path)
    assert found.rows == () and "cannot be used" in found.cautions[0].text
    assert not is_original_manifest(tmp_path / "run_manifest.tsv") and not is_original_manifest(tmp_path / "none.tsv")


def test_our_own_manifest_is_not_the_originals(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.tsv").write_text("\t".join([*MANIFEST_COLUMNS, "run", "hash"]) + "\n")
    assert not is_original_manifest(tmp_path / "run_manifest.tsv")


def row(**cells: str) -> Row:
    return Row(cells={"group": "z0", "repeat": "1", "status": "success", **cells})


def manifest(folder: Path, text: str | bytes) -> Path:
    path = folder / "run_manifest.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("tail", "repeats"),
    [
        ("sweep\tz0", [1]),
        ("sweep\tz0\t2\tsucsweep\tz0\t2\tsuccess\n", [1, 2]),
        ("sweep\tz0\t2\tsuccess\textra\n", [1]),
    ],
    ids=["torn at the end", "glued to the next row", "more cells than names"],
)
def test_a_row_that_does_not_fit_its_header_is_counted(tmp_path: Path, tail: str, repeats: list[int]) -> None:
    read = read_manifest(manifest(tmp_path, f"mode\tgroup\trepeat\tstatus\nsweep\tz0\t1\tsuccess\n{tail}"))
    assert ([row.repeat for row in read.rows], read.num_torn) == (repeats, 1)


def test_a_glued_row_whose_own_name_is_glued_too_is_passed_over(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "group\trepeat\tstatus\nz0\t1z1\t2\tsuccess\nz0\t3\tsuccess\n"))
    assert ([row.run for row in read.rows], read.num_torn) == (["z0_r3"], 1)


def test_of_a_last_line_without_its_end_the_last_cell_is_not_trusted(tmp_path: Path) -> None:
    (found,) = read_manifest(manifest(tmp_path, "group\trepeat\tstatus\tlast_iter_ms_p50\nz0\t1\tsuccess\t34")).rows
    assert "last_iter_ms_p50" not in found.cells and found.is_success


def test_rows_under_a_header_that_says_too_little_are_counted(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "mode\tgroup\nab\ttuned\nmode\tgroup\trepeat\tstatus\nab\ttuned\t1\tsuccess\n"))
    assert (len(read.rows), read.num_torn) == (1, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("mode\tgroup\trepeat\nsweep\tz0\t1\n", "its header has no column 'status'"),
        ("1\t2\n", "it does not begin with the names of its columns"),
    ],
)
def test_a_manifest_of_no_use_says_why(tmp_path: Path, text: str, problem: str) -> None:
    assert read_manifest(manifest(tmp_path, text)).problem == problem


def test_what_is_no_file_is_a_problem_and_no_error(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "none.tsv").problem == read_manifests(tmp_path).problem == "there is no such file"
    assert read_manifest(tmp_path).problem != ""


def test_one_that_was_set_aside_stands_in_for_one_that_is_gone(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, RUNS[0], backup_rows=[sweep_run(1, 192)])
    (tmp_path / "run_manifest.tsv").unlink()
    found = read_manifests(tmp_path)
    assert (len(found.rows), found.problem, len(found.set_aside)) == (1, "", 1)
    assert found.has_column("micro_batch") and not found.has_column("iter_p90_over_p50")


@pytest.mark.parametrize(
    ("cells", "is_success"),
    [({}, True), ({"status": "SUCCESS"}, True), ({"exit_code": "0"}, True), ({"exit_code": "1"}, False), ({"status": "failed"}, False)],
)
def test_what_counts_as_success(cells: dict[str, str], is_success: bool) -> None:
    assert row(**cells).is_success is is_success and row(**cells).status == ("success" if is_success else "failed")


def test_which_row_of_a_run_counts() -> None:
    rows = [row(attempt="2"), row(attempt="10"), row(attempt="1")]
    assert newest(rows) is rows[1] and newest([]) is None
    assert newest(plain := [row(n="a"), row(n="b")]) is plain[1], "without attempts the last in the file"
    marked = [row(current="false"), row(current="true"), row()]
    assert counting_rows(marked) == marked[1:]


def test_a_repeat_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "group\trepeat\tstatus\nz0\t01\tfailed\nz0\t1\tsuccess\nz0\t1.0\tsuccess\n"))
    assert [len(rows) for rows in by_run(read.rows).values()] == [3]


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_taken(tmp_path: Path, data: bytes) -> None:
    read = read_manifest(manifest(tmp_path, b"group\trepeat\tstatus\n" + data))
    assert all(row.repeat > 0 for row in read.rows)
    read_manifest(manifest(tmp_path, data))
