"""Errors of the machine in one sentence, errors of ours left as they are."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from seatrial.cli.machine_trouble import GONE, MEMORY, machine_trouble

AGAIN = "run the same command again"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "Full"), "the disk: Full; make room on that disk, then the same command goes on from there"),
        (OSError(errno.EACCES, "Denied", "/out/a"), "/out/a: Denied; mend its permissions, or use another folder"),
        (OSError(errno.EACCES, "Denied", "/out/.a.x.part"), "/out: Denied; mend its permissions, or use another folder"),
        (OSError(errno.EMFILE, "Too many"), f"the system: Too many; allow more open files (`ulimit -n 1024`) and {AGAIN}"),
        (OSError(errno.ENOTDIR, "No folder", b"/a"), "/a: No folder; a file stands where a folder is needed: choose another path"),
        (OSError(errno.ENXIO, "No device", "/a"), f"/a: No device; mend that and {AGAIN}"),
        (RuntimeError("can't start new thread"), f"no thread can be started: allow more processes (`ulimit -u`) or end some, then {AGAIN}"),
        (MemoryError(), MEMORY),
    ],
)
def test_one_sentence_that_says_what_to_do(error: Exception, text: str) -> None:
    assert machine_trouble(error) == text


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), KeyError("x"), OSError("without a number")])
def test_an_error_of_ours_is_not_hidden(error: Exception) -> None:
    assert machine_trouble(error) is None


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert machine_trouble(caught.value) == GONE
    relative = FileNotFoundError(errno.ENOENT, "No such file or directory", ".")
    assert machine_trouble(relative) == GONE
    elsewhere = machine_trouble(FileNotFoundError(errno.ENOENT, "No such file or directory", "/elsewhere"))
    assert elsewhere is not None and elsewhere.startswith("/elsewhere: No such file")
