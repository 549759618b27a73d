"""The command line's own behaviour: wrong use, and an output that breaks."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.cli.main import Unbreakable, run_command


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["runn"], "No such command"),
        (["run"], "Missing argument"),
        (["run", "plan.yaml", "--nope"], "No such option"),
        (["report", "nowhere"], "holds no campaign"),
        (["watch", "nowhere"], "nothing has run"),
        (["stop", "nowhere"], "no campaign is running"),
        (["logs", "nowhere"], "holds no run"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_1(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(words) == 1
    text = capsys.readouterr().err
    assert says in text and text.startswith("seatrial: ") and "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_without_words_help_is_shown() -> None:
    done = subprocess.run([sys.executable, "-m", "seatrial"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Usage: seatrial" in done.stdout + done.stderr
    assert not done.stderr.endswith("seatrial: \n")


class Full(io.TextIOBase):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [Full(), None])
def test_a_broken_output_is_silent(stream: io.TextIOBase | None) -> None:
    out = Unbreakable(stream)
    assert out.write("a") == 1
    out.flush()
    assert out.write("b") == 1


def test_a_character_that_cannot_be_shown_is_replaced() -> None:
    raw = io.BytesIO()
    out = Unbreakable(io.TextIOWrapper(raw, encoding="ascii"))
    out.write("± 5")
    out.flush()
    assert raw.getvalue() == b"? 5"
