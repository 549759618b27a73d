"""Samplers: intervals, gaps, impossible values, failing disks and hung drivers."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.machine.sampler import CsvWriter, Sampler, SamplerClock, Source, Unavailable, impossible_column
from seatrial.records.telemetry import SamplerAccount
from tests.csv_files import rows_of
from tests.facts import states

COLUMNS = ("timestamp", "epoch_sec", "gpu_index", "util_gpu_pct", "power_w", "sample_ms", "gap_s")
START_T = 1_794_705_558.0


class Script:
    """A source that gives the looks of a test, each after `took_s` on the test's clock, and stops the sampler at the end."""

    def __init__(self, looks: list[tuple[float, list[dict[str, Any]]]], notes: tuple[str, ...] = ()) -> None:
        self._looks, self._notes = looks, notes
        self.now = 50.0
        self.sampler: Sampler | None = None

    def clock(self) -> SamplerClock:
        return SamplerClock(monotonic=lambda: self.now, wall=lambda: START_T + self.now, cpu=lambda: 0.25)

    def sample(self, *, last: bool) -> Iterator[dict[str, Any]]:
        if not last and len(self._looks) == 2:
            assert self.sampler is not None
            self.sampler.stop()
        took_s, rows = self._looks.pop(0)
        self.now += took_s
        yield from rows

    def notes(self) -> list[str]:
        return list(self._notes)


def _run(path: Path, script: Script, open_source: Callable[[], Source | Unavailable] | None = None) -> SamplerAccount:
    """The thread's work, done here: the fake clock is always past the next look, so that nothing waits."""
    sampler = Sampler(open_source or (lambda: script), path, COLUMNS, 2.0, source_name="the driver", clock=script.clock())
    script.sampler = sampler
    sampler.run()
    sampler.stop()
    return sampler.summary(stuck=False)


def _util(value: int, **more: Any) -> dict[str, Any]:
    return {"gpu_index": 0, "util_gpu_pct": value, **more}


def test_rows_have_their_time_and_their_cost(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    account = _run(path, Script([(2.0, [_util(10)]), (2.0, [_util(20)]), (2.5, [_util(30)])]))
    rows = rows_of(path)
    assert [(row["epoch_sec"], row["util_gpu_pct"], row["sample_ms"], row["gap_s"]) for row in rows] == [
        ("1794705610", "10", "2000", ""),
        ("1794705612", "20", "2000", ""),
        ("1794705614.5", "30", "2500", ""),
    ]
    assert account == SamplerAccount(interval_s=2.0, rows=3, samples=3, cpu_s=0.25, wall_s=6.5, missing=("power_w",))


def test_a_gap_is_marked_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    account = _run(path, Script([(2.0, [_util(1)]), (4.0, [_util(2)]), (4.5, [_util(3)]), (9.0, [_util(4)]), (2.0, [_util(5)])]))
    assert [row["gap_s"] for row in rows_of(path)] == ["", "", "4.5", "9", ""]
    assert (account.gaps, account.longest_gap_s) == (2, 9.0)


def test_a_gpu_that_was_away_has_a_gap_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    both, one = [{"gpu_index": 0, "power_w": 1}, {"gpu_index": 1, "power_w": 2}], [{"gpu_index": 0, "power_w": 1}]
    account = _run(path, Script([(2.0, both), (2.0, one), (2.0, one), (2.0, both)]))
    assert [(row["gpu_index"], row["gap_s"]) for row in rows_of(path) if row["gap_s"]] == [("1", "6")]
    assert (account.rows, account.samples, account.gaps) == (6, 4, 1)


def test_impossible_samples_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    account = _run(path, Script([(2.0, [_util(4000)]), (2.0, [_util(97)]), (2.0, [_util(-1)])]))
    assert [row["util_gpu_pct"] for row in rows_of(path)] == ["97"]
    assert (account.invalid, account.rows, account.empty) == (2, 1, False)
    assert states(account.note, "2 samples", "util_gpu_pct 4000")


def test_no_rows_in_a_run_shorter_than_two_intervals_are_expected(tmp_path: Path) -> None:
    account = _run(tmp_path / "gpu.csv", Script([(0.1, []), (0.1, [])]))
    assert (account.rows, account.empty, account.expected) == (0, True, True)
    assert account.note == "the run was shorter than two intervals of 2 s"
    assert not (tmp_path / "gpu.csv").exists(), "no file with a header alone"


def test_no_rows_in_a_long_run_are_not_expected(tmp_path: Path) -> None:
    account = _run(tmp_path / "gpu.csv", Script([(5.0, []), (5.0, [])], notes=("GPU 0 gave no answer",)))
    assert (account.empty, account.expected, account.note) == (True, False, "GPU 0 gave no answer")


def test_trouble_in_a_short_run_is_no_excuse(tmp_path: Path) -> None:
    account = _run(tmp_path / "gpu.csv", Script([(0.1, []), (0.1, [])], notes=("GPU 0 gave no answer",)))
    assert (account.expected, account.note) == (False, "GPU 0 gave no answer")


@pytest.mark.parametrize("expected", [True, False])
def test_an_unavailable_source(tmp_path: Path, expected: bool) -> None:
    account = _run(tmp_path / "gpu.csv", Script([]), lambda: Unavailable("no GPU", expected=expected))
    assert replace(account, cpu_s=0.0) == SamplerAccount(interval_s=2.0, empty=True, expected=expected, note="no GPU")


def test_a_source_that_breaks_is_reported_and_ends_the_sampler_alone(tmp_path: Path) -> None:
    account = _run(tmp_path / "gpu.csv", Script([(2.0, [_util(1)])]))
    assert account.rows == 1
    assert account.note == "the sampler failed: IndexError: pop from empty list"
    assert account.expected is False


def test_rows_that_can_be_written_nowhere_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none").write_text("a file in the folder's place")
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "none" / "either"))
    account = _run(tmp_path / "none" / "gpu.csv", Script([(5.0, [_util(1)]), (5.0, [_util(2)])]))
    assert (account.rows, account.empty, account.expected) == (0, True, False)
    assert account.note == "2 rows could not be written (File exists)"


class Hanging:
    """A source whose second look does not return until the test releases it."""

    def __init__(self) -> None:
        self.called, self.released = threading.Event(), threading.Event()
        self.looks = 0

    def sample(self, *, last: bool) -> Iterator[dict[str, Any]]:
        self.looks += 1
        if self.looks > 1:
            self.called.set()
            self.released.wait(60)
        yield _util(50)

    def notes(self) -> list[str]:
        return []


def test_a_call_that_never_returns_keeps_nobody_waiting(tmp_path: Path) -> None:
    source = Hanging()
    sampler = Sampler(lambda: source, tmp_path / "gpu.csv", COLUMNS, 0.001, source_name="the driver")
    sampler.start()
    assert source.called.wait(60)
    sampler.stop()
    account = sampler.account(wait_s=0.0)
    assert sampler.stuck
    assert (account.rows, account.expected) == (1, False) and account.stopped_t is not None
    assert account.note.startswith("the driver stopped answering at ") and account.note.endswith(", 1 row before")
    source.released.set()
    assert sampler.account(wait_s=60.0).stopped_t is None
    assert not sampler.stuck


def test_a_source_that_is_still_being_opened_when_a_short_run_is_over(tmp_path: Path) -> None:
    opening, released = threading.Event(), threading.Event()

    def open_slowly() -> Unavailable:
        opening.set()
        released.wait(60)
        return Unavailable("no GPU", expected=True)

    for interval_s, expected in ((600.0, True), (0.000001, False)):
        opening.clear()
        sampler = Sampler(open_slowly, tmp_path / "gpu.csv", COLUMNS, interval_s, source_name="the driver")
        sampler.start()
        assert opening.wait(60)
        sampler.stop()
        account = sampler.account(wait_s=0.0)
        assert (account.expected, account.stopped_t is None) == (expected, expected), account.note
        assert ("was still being opened when the run was over" in account.note) is expected
    released.set()


def test_a_disk_that_hangs_is_named_and_not_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, released = threading.Event(), threading.Event()

    def hang(self: CsvWriter, rows: object) -> int:
        writing.set()
        released.wait(60)
        return 1

    monkeypatch.setattr(CsvWriter, "append", hang)
    sampler = Sampler(Hanging, tmp_path / "gpu.csv", COLUMNS, 0.001, source_name="the driver")
    sampler.start()
    assert writing.wait(60)
    sampler.stop()
    account = sampler.account(wait_s=0.0)
    released.set()
    assert account.note.startswith("gpu.csv could not be written since ") and "driver" not in account.note
    assert account.note.endswith(": its disk does not answer, 0 rows before") and account.stopped_t is not None


def test_a_disk_that_fails_at_close_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: CsvWriter) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(CsvWriter, "close", fail)
    account = _run(tmp_path / "gpu.csv", Script([(5.0, [_util(1)]), (5.0, [_util(2)])]))
    assert account.rows == 2
    assert states(account.note, "gpu.csv", "Input/output error", "lost")


def test_a_thread_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sampler = Sampler(Hanging, tmp_path / "gpu.csv", COLUMNS, 2.0, source_name="the driver")
    sampler.start()
    sampler.stop()
    account = sampler.account(wait_s=1.0)
    assert (account.empty, account.expected, account.note) == (True, False, "the sampler did not start: can't start new thread")


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"util_gpu_pct": 4000}, "util_gpu_pct"),
        ({"util_gpu_pct": -1}, "util_gpu_pct"),
        ({"util_gpu_pct": 100, "util_mem_pct": 101}, "util_mem_pct"),
        ({"power_w": -0.1}, "power_w"),
        ({"power_w": 4_294_967.295}, "power_w"),
        ({"mem_used_mib": 81921, "mem_total_mib": 81920}, "mem_used_mib"),
        ({"mem_available_kib": 11, "mem_total_kib": 10}, "mem_available_kib"),
        ({"cpu_steal_pct": 100.5}, "cpu_steal_pct"),
        ({"net_rx_kib_per_s": -3.0}, "net_rx_kib_per_s"),
        ({"temp_c": 255}, "temp_c"),
    ],
)
def test_impossible(row: dict[str, Any], column: str) -> None:
    assert impossible_column(row) == column


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"util_gpu_pct": None, "gpu_name": "H200"},
        {"util_gpu_pct": 0, "power_w": 0.0, "temp_c": -4},
        {"util_gpu_pct": 100, "power_w": 1200.0},
        {"tree_cpu_pct": 6400.0},
        {"mem_used_mib": 81920, "mem_total_mib": 81920},
        {"mem_used_mib": 1, "mem_total_mib": None},
    ],
)
def test_possible(row: dict[str, Any]) -> None:
    assert impossible_column(row) is None


def test_no_file_without_a_row_and_one_header(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    file = CsvWriter(path, ("a", "b"))
    assert not path.exists()
    assert file.append([{"a": 1, "b": None}]) == 1
    assert path.read_text() == "a,b\n1,\n", "flushed at once"
    assert file.append([{"b": 0.25, "c": "left out"}, {"a": 'one, two "three"'}]) == 2
    assert path.read_text() == "a,b\n1,\n,0.25\none  two  three ,\n"
    file.close()


def test_a_folder_that_cannot_be_made_costs_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "none" / "either"))
    (tmp_path / "none").write_text("")
    file = CsvWriter(tmp_path / "none" / "gpu.csv", ("a",))
    assert file.append([{"a": 1}, {"a": 2}]) == 0
    assert file.lost_rows == 2 and file.problem in ("File exists", "Not a directory")
    (tmp_path / "none").unlink()
    assert file.append([{"a": 3}]) == 1
    file.close()
    assert (tmp_path / "none" / "gpu.csv").read_text() == "a\n3\n"


def test_a_writer_whose_disk_fails_at_close_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CsvWriter(tmp_path / "gpu.csv", ("a",))
    file.append([{"a": 1}])

    def fail(handle: int) -> None:
        monkeypatch.undo()
        os.close(handle)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", fail)
    with pytest.raises(OSError, match="Disk quota exceeded"):
        file.close()
    file.close()
