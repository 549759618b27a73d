"""When the bytes of a run's output came, from rows that may be anything."""

from __future__ import annotations

from pathlib import Path

from seatrial.collect.logs.arrivals import read_arrivals


def write_rows(path: Path, rows: list[tuple[object, object, object]]) -> Path:
    path.write_text("offset_bytes,t,m\n" + "".join(f"{end},{t},{m}\n" for end, t, m in rows))
    return path


def test_rows_that_contradict_the_others_are_left_out(tmp_path: Path) -> None:
    good = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 10)]
    bad = [("x", 1, 2), (450, "nan", 55.0), (-5, 1.0, 1.0), (350, 1003.0, 9e9), (10**18, 1004.0, 1.0), (400, 1004.0, 54.0)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", [*good[:4], *bad, *good[4:]]))
    assert [row.end_bytes for row in found.rows] == [end for end, _, _ in good]
    # What lies before 400 and came at 9e9, as a row says, may have come with it.
    assert [row.m for row in found.rows if row.m == row.m] == [m for end, _, m in good if end != 400]
    assert found.passed_over == len(bad)


def test_bytes_of_a_chunk_whose_row_is_lost_have_no_time(tmp_path: Path) -> None:
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", [(100, 1001.0, 51.0), ("2\x8000", 1002.0, 52.0), (300, 1003.0, 53.0)]))
    assert [(row.end_bytes, row.m == row.m) for row in found.rows] == [(100, True), (300, False)]


def test_rows_in_any_order_are_put_in_order(tmp_path: Path) -> None:
    good = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 10)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", good[::-1]))
    assert [row.end_bytes for row in found.rows] == [100 * at for at in range(1, 10)] and found.passed_over == 0


def test_between_the_ends_of_a_large_file_no_time_is_known(tmp_path: Path) -> None:
    rows = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 100)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", rows), most_bytes=200)
    times = {row.end_bytes: row.m for row in found.rows}
    assert times[100] == 51.0 and times[9900] == 149.0 and len(times) < 20
    first_of_tail = next(row for row in found.rows if row.end_bytes > 5000)
    assert first_of_tail.m != first_of_tail.m, "bytes of the middle must not get the time of the first chunk after it"
