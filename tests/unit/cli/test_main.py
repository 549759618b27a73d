"""The command line's own behaviour: wrong use, help, and an interrupt that typer renames."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.cli import main
from seatrial.cli.main import run_command
from seatrial.errors import RefusedError


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


def app_that_raises(error: BaseException, cause: BaseException | None = None) -> object:
    def app(**_: object) -> int:
        raise error from cause

    return lambda verbs: app


@pytest.mark.parametrize(
    ("error", "cause", "code", "said"),
    [
        (KeyboardInterrupt(), None, 130, ""),
        (RuntimeError("Aborted"), KeyboardInterrupt(), 130, ""),
        (RefusedError("no GPU"), KeyboardInterrupt(), 2, "seatrial: no GPU\n"),
        (MemoryError(), None, 1, "seatrial: out of memory"),
    ],
)
def test_what_a_verb_raises_becomes_an_exit_code(
    error: BaseException,
    cause: BaseException | None,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(main, "build_app", app_that_raises(error, cause))
    assert run_command(["run"]) == code
    assert capsys.readouterr().err.startswith(said)


def test_an_error_of_ours_is_raised_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "build_app", app_that_raises(ZeroDivisionError("x")))
    with pytest.raises(ZeroDivisionError):
        run_command(["run"])


def test_what_is_no_number_is_exit_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "build_app", lambda verbs: lambda **_: None)
    assert run_command(["run"]) == 0


def test_python_m_seatrial_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "seatrial", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("seatrial ") and done.stderr == ""
