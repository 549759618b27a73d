"""DRIVER_LOG_PATH: all that is printed, in a file too, whatever becomes of its disk."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

from seatrial.disk.append import AppendFile
from seatrial.errors import UsageError
from seatrial_runbooks.stage1 import driver_log
from seatrial_runbooks.stage1.driver_log import logged_to, refuse_unusable_log


def test_both_streams_go_there_and_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "not yet" / "there" / "driver.log"
    with logged_to(path):
        print("one")
        print("two", file=sys.stderr)
    with logged_to(path):
        print("\x1b[31mthree\x1b[0m — é")
    print("four")
    assert path.read_text() == "one\ntwo\nthree — é\n"
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("one\n\x1b[31mthree\x1b[0m — é\nfour\n", "two\n")


def test_no_path_is_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with logged_to(None):
        assert sys.stdout is before


def test_a_file_that_can_never_be_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with logged_to(tmp_path / "file" / "driver.log"):
        print("said")
    shown = capsys.readouterr()
    assert shown.out == "said\n"
    assert shown.err.startswith(f"[WARN] going on without the driver log {tmp_path}/file/driver.log: ")
    assert "a file stands where a folder is needed" in shown.err


@pytest.mark.parametrize(("kept_in", "ending"), [("kept", "; what it did not take is kept and merged back\n"), ("/dev/full/x", "\n")])
def test_a_full_disk_costs_lines_of_the_log_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kept_in: str, ending: str
) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / kept_in))
    monkeypatch.setattr(driver_log, "AppendFile", functools.partial(AppendFile, sleep=lambda wait_s: None))
    with logged_to(Path("/dev/full")):
        print("said")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("said\n", f"[WARN] the driver log /dev/full is not whole: No space left on device{ending}")


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"which is a folder: name a file, as in .*driver\.log"):
        refuse_unusable_log(tmp_path)
