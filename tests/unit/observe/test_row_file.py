"""Rows on disk, also on one that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    done = subprocess.run([sys.executable, "-c", FILLS_UP, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[1, 1, 0, 0, 1] 2 File too large\n"
    assert path.read_text() == "a,b\n1000000,2\n1000001,2\n7,8\n"


def test_a_folder_that_is_not_there_costs_rows_only(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "none" / "gpu.csv", ("a",))
    assert file.append([{"a": 1}, {"a": 2}]) == 0
    assert (file.lost_rows, file.problem) == (2, "No such file or directory")
    (tmp_path / "none").mkdir()
    assert file.append([{"a": 3}]) == 1
    file.close()
    assert (tmp_path / "none" / "gpu.csv").read_text() == "a\n3\n"
