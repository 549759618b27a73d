"""Memory from the end of host_telemetry.csv, bytes from the folder, neither ever an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.observe.row_file import RowFile
from seatrial.observe.usage import Written, WrittenCount, newest_rss_bytes
from seatrial.paths import AttemptPaths
from seatrial.records.telemetry import HOST_COLUMNS


@pytest.fixture
def telemetry(tmp_path: Path) -> Path:
    return tmp_path / "host_telemetry.csv"


def sample(path: Path, *rss_kib: int | None) -> None:
    rows = RowFile(path, HOST_COLUMNS)
    rows.append([{"load1": 0.5, "rss_kib": value} for value in rss_kib])
    rows.close()


def test_the_newest_sample_counts(telemetry: Path) -> None:
    sample(telemetry, 100, 300, 200)
    assert newest_rss_bytes(telemetry) == 200 * 1024


def test_a_sample_without_it_leaves_the_one_before(telemetry: Path) -> None:
    sample(telemetry, 100, None)
    assert newest_rss_bytes(telemetry) == 100 * 1024


def test_only_the_end_of_a_long_file_is_read(telemetry: Path) -> None:
    sample(telemetry, *range(20_000))
    assert newest_rss_bytes(telemetry) == 19_999 * 1024


def test_a_torn_row_is_not_half_a_number(telemetry: Path) -> None:
    sample(telemetry, 100, 987_654)
    text = telemetry.read_bytes()
    telemetry.write_bytes(text[: text.rindex(b"987") + 3])
    assert newest_rss_bytes(telemetry) == 100 * 1024


def test_no_file_no_rows_and_a_folder_in_its_place(telemetry: Path) -> None:
    assert newest_rss_bytes(telemetry) is None
    sample(telemetry)
    assert newest_rss_bytes(telemetry) is None
    assert newest_rss_bytes(telemetry.parent) is None


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_read_without_a_word(telemetry: Path, data: bytes) -> None:
    telemetry.write_bytes(b"," * (len(HOST_COLUMNS) - 1) + b"\n" + data + b"\n")
    held = newest_rss_bytes(telemetry)
    assert held is None or held >= 0


@pytest.mark.parametrize("cell", [b"nan", b"inf", b"-5", b"1e300", b"x", b""])
def test_a_number_that_cannot_be_is_none(telemetry: Path, cell: bytes) -> None:
    telemetry.write_bytes(b",".join(cell if name == "rss_kib" else b"1" for name in HOST_COLUMNS) + b"\n")
    assert newest_rss_bytes(telemetry) is None


def test_what_an_attempt_has_written_is_counted_now_and_then(tmp_path: Path) -> None:
    attempt, now = AttemptPaths(tmp_path / "attempt-1"), [0.0]
    ranks = attempt.rank_logs / "x" / "attempt_0" / "1"
    ranks.mkdir(parents=True)
    attempt.stacks.mkdir()
    (attempt.folder / "other").mkdir()
    attempt.launcher_log.write_bytes(b"x" * 1000)
    (ranks / "stdout.log").write_bytes(b"x" * 3000)
    attempt.rank_stack(0).write_bytes(b"x" * 50)
    (attempt.folder / "other" / "model.bin").write_bytes(b"x" * 9000)
    (attempt.folder / "link.bin").symlink_to(attempt.folder / "other" / "model.bin")
    count = WrittenCount(attempt, monotonic=lambda: now[0])

    expected = Written(bytes=4050, largest_file="ranks/x/attempt_0/1/stdout.log", largest_bytes=3000)
    assert count.look() == expected
    attempt.launcher_log.write_bytes(b"x" * 5000)
    now[0] = 4.9
    assert count.look() == expected
    now[0] = 5.0
    assert count.look() == Written(bytes=8050, largest_file="launcher.log", largest_bytes=5000)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert WrittenCount(AttemptPaths(tmp_path / "attempt-1")).look() == Written()
