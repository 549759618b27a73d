from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seatrial.errors import LaunchError
from seatrial.launch.program import resolved
from seatrial.records.command import Command


def _first_word(word: str, cwd: Path, search_path: str, env: dict[str, str] | None = None) -> str:
    command = Command(argv=(word, "x"), env=env or {}, cwd=str(cwd))
    return resolved(command, {"PATH": search_path}).argv[0]


def _program(path: Path, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_word_on_path_becomes_its_path(tmp_path: Path) -> None:
    starter = _program(tmp_path / "starter")
    assert _first_word("starter", Path("/"), str(tmp_path)) == str(starter)
    assert _first_word("starter", Path("/"), "", {"PATH": str(tmp_path)}) == str(starter)


def test_relative_entry_of_path_counts_from_the_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    starter = _program(tmp_path / "bin" / "starter")
    assert _first_word("starter", tmp_path, "bin") == str(starter)


def test_program_beside_this_interpreter_becomes_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = _program(tmp_path / "only-here")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert _first_word("only-here", Path("/"), "/nowhere") == str(beside)


def test_relative_path_counts_from_the_runs_folder(tmp_path: Path) -> None:
    _program(tmp_path / "run.sh")
    assert _first_word("./run.sh", tmp_path, "") == "./run.sh"


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("no-such-program", "install it, or activate the environment it is in"),
        ("./missing.sh", "does not exist"),
        ("./plain.sh", "chmod"),
        ("plain.sh", "type './plain.sh'"),
    ],
)
def test_what_cannot_be_started_says_what_to_do(tmp_path: Path, word: str, advice: str) -> None:
    _program(tmp_path / "plain.sh", mode=0o644)
    with pytest.raises(LaunchError, match=advice) as caught:
        _first_word(word, tmp_path, "/nowhere")
    assert f"'{word}'" in str(caught.value)
