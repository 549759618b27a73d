"""Lines for people, which neither an odd encoding nor a reader that has gone can break."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from seatrial_workloads.librispeech.spoken_lines import say, warn


def test_lines_go_to_their_stream_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    say("done")
    warn("not done")
    assert capsys.readouterr() == ("done\n", "not done\n")


def test_what_the_terminal_has_not_got_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    say("dev-clean/名.flac \udcff")
    assert written.getvalue() == b"dev-clean/\\u540d.flac \\udcff\n"


def test_a_reader_that_has_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        say("one")
        say("two")
        assert Path(f"/proc/self/fd/{write_end}").readlink() == Path(os.devnull)
