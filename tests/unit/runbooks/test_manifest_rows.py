"""Tables of campaigns, whole and damaged, read by the names of their columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial_runbooks.stage1.manifest_rows import TableReader, counting_rows, flag, newest, number, read_manifest, run_key


def manifest(folder: Path, text: str | bytes) -> Path:
    path = folder / "run_manifest.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "status\trepeat\tgroup\nsuccess\t2\tz0\n"))
    assert read.rows == ({"status": "success", "repeat": "2", "group": "z0"},)
    assert read.num_torn == 0 and read.problem == ""


@pytest.mark.parametrize(
    "tail",
    ["sweep\tz0", "sweep\tz0\t2\tsucsweep\tz0\t2\tsuccess\n", "sweep\tz0\t2\tsuccess\textra\n"],
    ids=["torn at the end", "glued to the next row", "more cells than names"],
)
def test_a_row_that_does_not_fit_its_header_is_passed_over_and_counted(tmp_path: Path, tail: str) -> None:
    read = read_manifest(manifest(tmp_path, f"mode\tgroup\trepeat\tstatus\nsweep\tz0\t1\tsuccess\n{tail}"))
    assert [row["repeat"] for row in read.rows] == ["1"]
    assert read.num_torn == 1


def test_of_a_last_line_without_its_end_the_last_cell_is_not_trusted(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "group\trepeat\tstatus\tlast_iter_ms_p50\nz0\t1\tsuccess\t34"))
    assert read.rows[0]["last_iter_ms_p50"] == "" and read.rows[0]["status"] == "success"


def test_another_header_holds_from_where_it_stands(tmp_path: Path) -> None:
    read = read_manifest(
        manifest(tmp_path, "mode\tgroup\trepeat\tstatus\nab\ttuned\t1\tfailed\nmode\trepeat\tgroup\tstatus\nab\t2\ttuned\tsuccess\n")
    )
    assert [(row["group"], row["repeat"], row["status"]) for row in read.rows] == [("tuned", "1", "failed"), ("tuned", "2", "success")]


def test_rows_under_a_header_that_says_too_little_are_counted_as_torn(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "mode\tgroup\nab\ttuned\nmode\tgroup\trepeat\tstatus\nab\ttuned\t1\tsuccess\n"))
    assert len(read.rows) == 1 and read.num_torn == 1


def test_line_ends_of_windows_and_a_byte_order_mark_are_taken(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "\ufeffgroup\trepeat\tstatus\r\nz0\t1\tsuccess\r\n"))
    assert read.rows == ({"group": "z0", "repeat": "1", "status": "success"},)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "it is empty"), ("mode\tgroup\trepeat\nsweep\tz0\t1\n", "its header has no column 'status'")],
)
def test_a_manifest_of_no_use_says_why(tmp_path: Path, text: str, problem: str) -> None:
    assert read_manifest(manifest(tmp_path, text)).problem == problem


def test_what_is_no_file_is_a_problem_and_no_error(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "none.tsv").problem == "there is no such file"
    assert read_manifest(tmp_path).problem != ""


def test_a_csv_is_read_with_quotes_and_spaces(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text('group,train_log,step\nz0,"a, b/train.log", 10\n')
    assert list(TableReader(path)) == [{"group": "z0", "train_log": "a, b/train.log", "step": "10"}]


def test_a_quote_without_end_costs_one_line_only(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text('group,step\n"z0,10\nz0,20\n')
    reader = TableReader(path)
    assert list(reader) == [{"group": "z0", "step": "20"}] and reader.num_torn == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), (" 2 ", 2.0), ("", None), ("nan", None), ("NaN", None), ("inf", None), ("[N/A]", None), ("1e300", None), ("-3", -3.0)],
)
def test_numbers(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("1", True), ("0", False), ("", None), ("maybe", None)])
def test_flags(text: str, value: bool | None) -> None:
    assert flag(text) is value


def test_which_row_of_a_run_counts() -> None:
    rows = [{"attempt": "2", "n": "a"}, {"attempt": "10", "n": "b"}, {"attempt": "1", "n": "c"}]
    assert newest(rows) == rows[1]
    assert newest([{"n": "a"}, {"n": "b"}]) == {"n": "b"}, "without attempts the last in the file"
    assert newest([]) is None
    assert counting_rows([{"current": "false"}, {"current": "true"}, {"current": ""}, {}]) == [{"current": "true"}, {"current": ""}, {}]


def test_a_repeat_is_the_same_however_it_is_written() -> None:
    assert run_key({"mode": "sweep", "group": "z0", "repeat": "01"}) == run_key({"mode": "sweep", "group": "z0", "repeat": "1"})
    assert run_key({"group": "z0", "repeat": "first"}) == ("", "z0", "first")


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_taken(tmp_path: Path, data: bytes) -> None:
    read = read_manifest(manifest(tmp_path, b"group\trepeat\tstatus\n" + data))
    assert all(len(row) == 3 for row in read.rows) or read.problem
    list(TableReader(manifest(tmp_path, data)))
