"""What /proc tells of processes, from a folder that looks like it and from the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seatrial.machine.proc_files import all_pids, command_words, environment_words, listed_pids, own_pids, read_line, start_ticks

STAT = "7 ({name}) {state} 3 7 7 0 -1 0 0 0 0 0 100 50 20 10 20 0 4 0 9876 8192 25 0"


def _process(proc: Path, pid: int, stat: str = STAT.format(name="python", state="S")) -> Path:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(stat)
    return folder


def test_who_is_there(tmp_path: Path) -> None:
    _process(tmp_path, 7)
    (tmp_path / "self").mkdir()
    (tmp_path / "cpuinfo").touch()
    assert all_pids(tmp_path) == listed_pids(tmp_path) == own_pids(tmp_path) == {7}
    assert os.getpid() in own_pids() <= all_pids()


def test_without_a_proc_nobody_is_there_and_who_must_know_is_told(tmp_path: Path) -> None:
    assert all_pids(tmp_path / "none") == own_pids(tmp_path / "none") == set()
    with pytest.raises(OSError):
        listed_pids(tmp_path / "none")


@pytest.mark.parametrize("name", ["python", "a) R 1 (b", ""])
def test_one_line_whatever_the_name(tmp_path: Path, name: str) -> None:
    _process(tmp_path, 7, STAT.format(name=name, state="S"))
    line = read_line(str(tmp_path), 7)
    assert line is not None and (line.name, line.parent, line.state, line.threads, line.started_ticks) == (name, 3, "S", 4, 9876)
    assert line.cpu_s == 150 / os.sysconf("SC_CLK_TCK") and line.reaped_s == 30 / os.sysconf("SC_CLK_TCK") and line.vsz_kib == 8


@pytest.mark.parametrize("stat", ["", "7 (python", "7 (python) S 3", "7 (python) S x 7"])
def test_a_line_that_is_damaged_is_none(tmp_path: Path, stat: str) -> None:
    _process(tmp_path, 7, stat)
    assert read_line(str(tmp_path), 7) is None and read_line(str(tmp_path), 8) is None


def test_a_zombie_has_started_never_again(tmp_path: Path) -> None:
    _process(tmp_path, 7)
    _process(tmp_path, 8, STAT.format(name="python", state="Z"))
    assert (start_ticks(7, tmp_path), start_ticks(8, tmp_path), start_ticks(9, tmp_path)) == (9876, None, None)


def test_words_and_variables_are_bytes_and_may_be_empty(tmp_path: Path) -> None:
    folder = _process(tmp_path, 7)
    (folder / "cmdline").write_bytes(b"python\0\0-c\0\xff\0")
    (folder / "environ").write_bytes(b"A=1\0B=\0")
    assert command_words(7, tmp_path) == (b"python", b"", b"-c", b"\xff")
    assert environment_words(7, tmp_path) == (b"A=1", b"B=")
    assert command_words(8, tmp_path) == environment_words(8, tmp_path) == ()
    # As threads of the kernel have it, and as a process has it that was started with one empty word.
    (folder / "cmdline").write_bytes(b"")
    (folder / "environ").write_bytes(b"\0")
    assert command_words(7, tmp_path) == () and environment_words(7, tmp_path) == (b"",)
    # As setproctitle leaves it.
    (folder / "cmdline").write_bytes(b"a title without an end")
    assert command_words(7, tmp_path) == (b"a title without an end",)
