"""The fuzzing command itself: it finds what is planted, keeps the input, and says so in its last line and exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.fuzz import __main__ as command
from tests.fuzz import engines, targets


def planted(data: bytes) -> None:
    if data.startswith(b"a"):
        raise KeyError("planted")


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = targets.Target(lambda data: len(data), (b"abc",))
    monkeypatch.setattr(targets, "all_targets", lambda: {"planted one": targets.Target(planted, (b"abc",)), "sound": sound})


def test_hypothesis_finds_the_crash_and_keeps_its_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError, match="planted"):
        engines.run("hypothesis", "planted one", 30.0, tmp_path)
    (saved,) = tmp_path.iterdir()
    assert saved.name.startswith("planted-one-") and saved.read_bytes().startswith(b"a")
    assert "FUZZED runs=" in capsys.readouterr().out


def test_a_sound_target_is_run_until_its_time_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engines.run("hypothesis", "sound", 0.1, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert int(capsys.readouterr().out.partition("FUZZED runs=")[2]) >= 100


def test_a_crash_is_exit_code_one_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fuzzed(name: str, engine: str, seconds: float, output: Path) -> command.Outcome:
        return command.Outcome(runs=7, crashes=[output / "x"] if name == "planted one" else [])

    monkeypatch.setattr(command, "fuzz_target", fuzzed)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--seconds", "1", "--engine", "hypothesis", "--output", str(tmp_path)])
    assert command.main() == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["fuzz"], told["targets"], told["runs"], told["crashes"]) == ("hypothesis", 2, 14, 1)


def test_a_saved_input_can_be_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "input").write_bytes(b"a")
    monkeypatch.setattr(sys, "argv", ["fuzz", "--target", "planted one", "--input", str(tmp_path / "input")])
    with pytest.raises(KeyError, match="planted"):
        command.main()
