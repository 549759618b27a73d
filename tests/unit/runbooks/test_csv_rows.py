"""Tables of samples and timing points, whole and damaged, read by the names of their columns."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial_runbooks.stage1.csv_rows import TableReader, dropped_words


def table(folder: Path, text: str | bytes) -> Path:
    path = folder / "points.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_csv_is_read_with_quotes_and_spaces(tmp_path: Path) -> None:
    path = table(tmp_path, 'group,train_log,step\nz0,"a, b/train.log", 10\n')
    assert list(TableReader(path)) == [{"group": "z0", "train_log": "a, b/train.log", "step": "10"}]


def test_a_quote_without_end_costs_one_line_only(tmp_path: Path) -> None:
    reader = TableReader(table(tmp_path, 'group,step\n"z0,10\nz0,20\n'))
    assert list(reader) == [{"group": "z0", "step": "20"}] and reader.num_torn == 1


def test_torn_rows_headers_that_come_again_and_a_last_cell_without_end(tmp_path: Path) -> None:
    reader = TableReader(table(tmp_path, "\ufeffgroup,step\r\nz0,10\r\nz0\r\n\r\nstep,group\r\ngroup,step,ms\r\nz0,20,5"))
    assert list(reader) == [{"group": "z0", "step": "10"}, {"group": "step", "step": "group"}, {"group": "z0", "step": "20", "ms": ""}]
    assert (reader.num_headers, reader.num_torn) == (2, 1)


def test_what_is_no_file_is_a_problem_and_no_error(tmp_path: Path) -> None:
    absent, folder = TableReader(tmp_path / "none.csv"), TableReader(tmp_path)
    assert list(absent) == list(folder) == []
    assert absent.problem == "there is no such file" and folder.problem != ""


def test_what_was_dropped_in_words() -> None:
    assert dropped_words(0, 0) == ""
    assert dropped_words(4, 1) == "; dropped: 4 rows with values that cannot be and 1 torn rows"


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_taken(tmp_path: Path, data: bytes) -> None:
    reader = TableReader(table(tmp_path, data))
    rows = list(reader)
    assert reader.problem == "" and (not rows or reader.num_headers)
