"""Rows on disk, also on one that is full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.disk.merging import merge_back
from seatrial.observe.row_file import RowFile

# A limit on the size of files stands in for a full disk: the write that crosses it goes in by half, the next is refused.
FILLS_UP = """
import resource, sys
from pathlib import Path
from seatrial.observe.row_file import RowFile
file = RowFile(Path(sys.argv[1]), ("a", "b"))
resource.setrlimit(resource.RLIMIT_FSIZE, (30, resource.RLIM_INFINITY))
written = [file.append([{"a": 1000000 + number, "b": 2}]) for number in range(4)]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
written.append(file.append([{"a": 7, "b": 8}]))
print(written, file.lost_rows, file.problem)
"""


def test_no_file_without_a_row_and_one_header(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    file = RowFile(path, ("a", "b"))
    assert not path.exists()
    assert file.append([{"a": 1, "b": None}]) == 1
    assert path.read_text() == "a,b\n1,\n", "flushed at once"
    assert file.append([{"b": 0.25, "c": "left out"}, {"a": 'one, two "three"'}]) == 2
    assert path.read_text() == "a,b\n1,\n,0.25\none  two  three ,\n"
    file.close()


def test_a_full_disk_costs_whole_rows_and_leaves_none_torn(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    env = {**os.environ, "SEATRIAL_FALLBACK_DIR": str(tmp_path / "fallback")}
    done = subprocess.run([sys.executable, "-c", FILLS_UP, str(path)], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "[1, 1, 0, 0, 1] 2 File too large\n"
    assert path.read_text() == "a,b\n1000000,2\n1000001,2\n7,8\n"


def test_a_folder_that_cannot_be_made_costs_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "none" / "either"))
    (tmp_path / "none").write_text("")
    file = RowFile(tmp_path / "none" / "gpu.csv", ("a",))
    assert file.append([{"a": 1}, {"a": 2}]) == 0
    assert file.lost_rows == 2 and file.problem in ("File exists", "Not a directory")
    (tmp_path / "none").unlink()
    assert file.append([{"a": 3}]) == 1
    file.close()
    assert (tmp_path / "none" / "gpu.csv").read_text() == "a\n3\n"


def test_rows_that_a_full_disk_refuses_are_kept_with_their_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "fallback"))
    path = tmp_path / "out" / "gpu.csv"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    file = RowFile(path, ("a", "b"))
    assert file.append([{"a": 1}]) == 1 and file.append([{"a": 2}, {"a": 3}]) == 2
    assert (file.lost_rows, file.problem) == (0, "")
    file.close()
    path.unlink()
    assert [one.merged for one in merge_back(path.parent)] == [True]
    assert path.read_text() == "a,b\n1,\n2,\n3,\n"


def test_a_disk_that_tells_only_at_the_end_that_it_lost_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RowFile(tmp_path / "gpu.csv", ("a",))
    file.append([{"a": 1}])

    def fail(handle: int) -> None:
        monkeypatch.undo()
        os.close(handle)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", fail)
    with pytest.raises(OSError, match="Disk quota exceeded"):
        file.close()
    file.close()
