"""`seatrial prepare`: a command for the workload's own program, run on this terminal, and its exit code."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.cli.prepare import EXAMPLES, exit_code_of, prepare
from seatrial.core.errors import SeatrialError
from seatrial_workloads.librispeech.options import parser
from tests.waiting import wait_until

TIMEOUT_S = 120


def test_the_verb_and_its_program_have_the_same_options_and_defaults() -> None:
    """The harness imports no workload, so the options stand in two places: here they are held together."""
    program = parser()
    verb = {name: value.default for name, value in inspect.signature(prepare).parameters.items() if name != "dataset"}
    required = {action.dest for action in program._actions if action.required}
    assert {action.dest for action in program._actions} - {"help"} == verb.keys()
    assert {name for name, default in verb.items() if default is inspect.Parameter.empty} == required == {"output_root"}
    assert all(program.get_default(name) == default for name, default in verb.items() if name not in required)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be started."""
    told: list[list[str]] = []
    monkeypatch.setattr("seatrial.cli.prepare.exit_code_of", lambda command: told.append(command) or 0)
    return told


def test_the_workloads_own_program_is_started(commands: list[list[str]]) -> None:
    assert run_command(["prepare", "librispeech", "--input-root", "in", "--output-root", "out", "--trim", "--workers", "8"]) == 0
    options = [
        "--input-root=in",
        "--output-root=out",
        "--target-sr=16000",
        "--trim",
        "--trim-top-db=60.0",
        "--workers=8",
        "--log-every=500",
    ]
    assert commands == [[sys.executable, "-P", "-m", "seatrial_workloads.librispeech.prepare", *options]]


def test_the_examples_can_be_typed(commands: list[list[str]]) -> None:
    for example in EXAMPLES["prepare"].split("\n\n"):
        assert run_command(example.split()[1:]) == 0
    assert len(commands) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["librispech", "--output-root", "x"], "did you mean 'librispeech'?"),
        (["librispeech"], "--output-root"),
        (["librispeech", "--output-root", "x", "--workers", "two"], "--workers"),
        (["librispeech", "--output-root", "x", "--trimm"], "--trimm"),
    ],
)
def test_wrong_use_ends_with_1(words: list[str], says: str, commands: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["prepare", *words]) == 1
    assert says in capsys.readouterr().err and commands == []


@pytest.mark.parametrize(("code", "ours"), [(0, 0), (1, 1), (2, 1), (77, 1), (130, 130)])
def test_exit_codes_are_turned_into_ours(code: int, ours: int) -> None:
    assert exit_code_of([sys.executable, "-c", f"raise SystemExit({code})"]) == ours


def test_a_program_that_is_killed_is_an_error() -> None:
    with pytest.raises(SeatrialError, match="killed by signal 9"):
        exit_code_of([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])


def test_a_signal_to_us_alone_ends_both_in_good_order(tmp_path: Path) -> None:
    """The started program says that it has begun and, when it was asked to end, that it has ended."""
    program = (
        "import pathlib, signal, sys\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "def end(number, frame):\n    (folder / 'ended').touch(); sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "(folder / 'begun').touch()\n"
        "signal.pause()\n"
    )
    harness = (
        "import sys\n"
        "from seatrial.cli import prepare\n"
        "from seatrial.cli.main import main\n"
        f"real = prepare.exit_code_of\n"
        f"prepare.exit_code_of = lambda command: real([sys.executable, '-c', {program!r}, {str(tmp_path)!r}])\n"
        "main(['prepare', 'librispeech', '--output-root', 'x'])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", harness], stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "begun").exists, "the program runs")
    os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130 and "interrupted" in said
    assert (tmp_path / "ended").exists()


def test_from_nothing_to_a_tree_that_is_checked(tmp_path: Path) -> None:
    for name in ("numpy", "soundfile", "soxr"):
        pytest.importorskip(name)

    def seatrial(*words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "seatrial", "prepare", "librispeech", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "12 utterances created" in seatrial("--synthetic", "12", "--output-root", "raw")
    assert "12 files prepared" in seatrial("--input-root", "raw", "--output-root", "out", "--trim", "--workers", "2")
    assert "12 files match" in seatrial("--verify", "--output-root", "out")
    next((tmp_path / "out").rglob("*.flac")).unlink()
    assert "not on disk" in seatrial("--verify", "--output-root", "out", code=1)
    assert "--workers is 0" in seatrial("--input-root", "raw", "--output-root", "out", "--workers", "0", code=1)
    script = Path(__file__).parents[3] / "runbooks" / "stage1" / "scripts" / "preprocess_librispeech_16k.py"
    command = [sys.executable, str(script), "--input-root", "raw", "--output-root", "again", "--trim", "--log-every", "4", "--workers", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert "12 files prepared" in done.stdout and "4 of 12 files" in done.stdout
