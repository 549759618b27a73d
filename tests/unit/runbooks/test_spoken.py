"""Lines on stdout, warnings on stderr with the scripts' mark."""

from __future__ import annotations

import pytest

from seatrial_runbooks.stage1.spoken import say, warn


def test_lines_and_warnings_go_to_streams_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    say("mode=sweep")
    warn("REPEATS is 1")
    assert capsys.readouterr() == ("mode=sweep\n", "[WARN] REPEATS is 1\n")
