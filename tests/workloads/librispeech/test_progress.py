"""How far it is, for people: a bar on a terminal, lines elsewhere, and an output that breaks nothing."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from seatrial_workloads.librispeech.progress import ProgressBar, ProgressLines, progress
from seatrial_workloads.librispeech.synthetic import make_tree
from tests.workloads.librispeech.trees import COMMAND, PATIENCE_S


def test_lines_tell_pace_and_time_to_go(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 100.0, 102.0, 104.0]).__next__
    with ProgressLines(1_000, 20, clock) as lines:
        for number in range(40):
            lines.advance("3 rejected" if number > 30 else "")
    assert capsys.readouterr().out.splitlines() == [
        "20 of 1000 files, 10.0 files/s, 0:01:38 to go",
        "40 of 1000 files, 10.0 files/s, 0:01:36 to go, 3 rejected",
    ]


@pytest.mark.parametrize("lines", [ProgressLines(10, 0), progress("preparing", 10, 1, quiet=True)])
def test_quiet_says_nothing(lines: ProgressLines, capsys: pytest.CaptureFixture[str]) -> None:
    with lines:
        for _ in range(10):
            lines.advance()
    assert capsys.readouterr().out == ""


def test_a_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress("preparing", 10, 1), ProgressLines)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert isinstance(progress("preparing", 10, 1), ProgressBar)


def test_a_terminal_gets_a_bar_with_the_time_to_go(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", 20, mean_s=0.5)
    ours, theirs = pty.openpty()
    command = [*COMMAND, "--input-root", str(tmp_path / "source"), "--output-root", str(tmp_path / "target")]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, timeout=PATIENCE_S, check=True, env={**os.environ, "TERM": "xterm"}
    )
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)
    assert "preparing" in shown and "20/20" in shown and "eta" in shown
    assert b"files/s, 0:" not in done.stdout


def test_a_reader_that_goes_ends_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", 20, mean_s=0.5)
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [*COMMAND, "--input-root", str(tmp_path / "source"), "--output-root", str(tmp_path / "target"), "--log-every", "1"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"") and (tmp_path / "target" / "manifest.tsv").exists()
