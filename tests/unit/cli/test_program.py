"""The command as a program: verbs, options, errors, signals, output."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import typing
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from seatrial.cli import main, options
from seatrial.cli.main import MODULES, VERBS, run_command
from seatrial.cli.program import (
    CLEANUP_S,
    FOLDER_GONE,
    OUT_OF_MEMORY,
    SafeStream,
    StopSignals,
    console_for,
    describe_system_error,
    print_json,
    print_lines,
    write_lines,
)
from seatrial.core.errors import STOP_SIGNALS, RefusedError


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


def test_python_m_seatrial_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "seatrial", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("seatrial ") and done.stderr == ""


SHARED = {name: value for name, value in vars(options).items() if typing.get_origin(value) is typing.Annotated}
# A sweep has no plan to name another folder, and an export writes to a file of its own.
OTHERWISE = {("sweep", "--out"), ("watch", "--open"), ("export", "--output"), ("prepare", "--verify")}


def flags_of(annotated: object) -> tuple[str, ...]:
    """`--json` and so on of an option; none for an argument."""
    given = typing.get_args(annotated)[1]
    return tuple(given.param_decls or ()) if isinstance(given, typer.models.OptionInfo) else ()


def typed_here() -> dict[str, set[str]]:
    """Flag → modules of verbs that describe it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in {MODULES.get(verb, verb) for verb in VERBS}:
        module = importlib.import_module(f"seatrial.cli.{name}")
        for value in vars(module).values():
            if typing.get_origin(value) is typing.Annotated and not any(value is shared for shared in SHARED.values()):
                for flag in flags_of(value):
                    found[flag].add(name)
    return found


def test_nothing_shared_is_described_again_by_a_verb() -> None:
    shared = {flag for value in SHARED.values() for flag in flags_of(value)}
    again = {(verb, flag) for flag, verbs in typed_here().items() if flag in shared for verb in verbs}
    assert again - OTHERWISE == set()


@pytest.mark.parametrize("name", sorted(SHARED))
def test_each_has_a_metavar_or_is_a_flag_and_says_what_it_does(name: str) -> None:
    kind, info = typing.get_args(SHARED[name])[:2]
    assert info.help and info.help.endswith("."), "one sentence"
    assert kind is bool or info.metavar


def test_with_json_people_read_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(console_for(), ["to stdout"])
    print_lines(console_for(as_json=True), ["to stderr"])
    print_json({"a": [1, None]})
    said = capsys.readouterr()
    assert (said.out, said.err) == ('to stdout\n{"a": [1, null]}\n', "to stderr\n")


def test_names_in_lines_are_no_markup_and_long_ones_are_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = ["[red]mb8[/red] :boom:", "x" * 50, ""]
    print_lines(console_for(), lines)
    assert capsys.readouterr().out == "\n".join(lines) + "\n"


def test_lines_can_be_written_untouched(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = ["[red]mb8\twith a tab", "x" * 50, "trailing  "]
    write_lines(lines)
    write_lines(["to stderr"], as_json=True)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("\n".join(lines) + "\n", "to stderr\n")


@pytest.mark.parametrize(("ensure_ascii", "text"), [(True, '"\\u2713"\n'), (False, '"✓"\n')])
def test_the_machines_line_is_one_line(ensure_ascii: bool, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json("✓", ensure_ascii=ensure_ascii)
    assert capsys.readouterr().out == text
    print_json({"text": "two\nlines"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and json.loads(out) == {"text": "two\nlines"}


AGAIN = "run the same command again"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "Full"), "the disk: Full; free space on that disk, then run the same command to resume"),
        (OSError(errno.EACCES, "Denied", "/out/a"), "/out/a: Denied; fix its permissions, or use another folder"),
        (OSError(errno.EACCES, "Denied", "/out/.a.x.part"), "/out: Denied; fix its permissions, or use another folder"),
        (OSError(errno.EMFILE, "Too many"), f"the system: Too many; allow more open files (`ulimit -n 1024`) and {AGAIN}"),
        (OSError(errno.ENOTDIR, "No folder", b"/a"), "/a: No folder; a file is where a folder is needed: choose another path"),
        (OSError(errno.ENXIO, "No device", "/a"), f"/a: No device; fix that and {AGAIN}"),
        (RuntimeError("can't start new thread"), f"no thread can be started: allow more processes (`ulimit -u`) or end some, then {AGAIN}"),
        (MemoryError(), OUT_OF_MEMORY),
    ],
)
def test_one_sentence_that_says_what_to_do(error: Exception, text: str) -> None:
    assert describe_system_error(error) == text


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), KeyError("x"), OSError("without a number")])
def test_an_error_of_ours_is_not_hidden(error: Exception) -> None:
    assert describe_system_error(error) is None


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert describe_system_error(caught.value) == FOLDER_GONE
    relative = FileNotFoundError(errno.ENOENT, "No such file or directory", ".")
    assert describe_system_error(relative) == FOLDER_GONE
    elsewhere = describe_system_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "/elsewhere"))
    assert elsewhere is not None and elsewhere.startswith("/elsewhere: No such file")


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    # Whoever started the tests may have one ignored, as nohup does.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_breaks_off_and_the_next_are_the_same_wish(number: signal.Signals) -> None:
    cleared = False
    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt):
            try:
                os.kill(os.getpid(), number)
            finally:
                for again in STOP_SIGNALS:
                    os.kill(os.getpid(), again)
                cleared = True
        assert signals.raised
    assert cleared


def test_one_that_comes_late_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    now_m = [0.0]
    with StopSignals(lambda: now_m[0]):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        now_m[0] = CLEANUP_S
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended == []
        now_m[0] = CLEANUP_S + 0.1
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [130]


class Interrupted:
    """Its end is interrupted, as that of an import's lock may be."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_interrupt_that_python_ignores_is_raised_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.unraisablehook
    with StopSignals() as signals, pytest.raises(KeyboardInterrupt):
        Interrupted()
        assert signals.raised
        time.sleep(LONGEST_S)
    assert sys.unraisablehook is before
    assert "Traceback" not in capsys.readouterr().err


def test_a_second_signal_before_it_is_raised_again_is_the_same_request(capsys: pytest.CaptureFixture[str]) -> None:
    with StopSignals() as signals, pytest.raises(KeyboardInterrupt):
        hook = sys.unraisablehook
        sys.unraisablehook = lambda unraisable: (os.kill(os.getpid(), signal.SIGINT), hook(unraisable))
        Interrupted()
        assert signals.raised
        time.sleep(LONGEST_S)
    assert "Traceback" not in capsys.readouterr().err


def test_without_threads_the_next_signal_interrupts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*given: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with StopSignals() as signals:
        Interrupted()
        assert signals.raised
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert "Traceback" not in capsys.readouterr().err


def test_other_errors_that_python_ignores_are_still_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(unraisable.exc_value))

    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    with StopSignals():
        Broken()
    assert [str(error) for error in shown] == ["broken"]


def test_after_the_block_nothing_can_be_broken_off() -> None:
    with StopSignals() as signals:
        pass
    for number in STOP_SIGNALS:
        os.kill(os.getpid(), number)
    assert not signals.raised


def test_under_nohup_hup_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
    assert not signals.raised


LONGEST_S = 60


@pytest.mark.parametrize(
    ("act", "say", "code", "said"),
    [
        ("lambda: 2", "print", 2, ""),
        ("lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0", "print", 130, "interrupted\n"),
        ("lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0", "None", 130, ""),
    ],
)
def test_the_process_ends_with_the_code(act: str, say: str, code: int, said: str) -> None:
    program = f"import os, signal; from seatrial.cli.program import exit_with; exit_with({act}, {say})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONGEST_S)
    assert (done.returncode, done.stdout) == (code, said), done.stderr


class Full(io.TextIOBase):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [Full(), None])
def test_a_broken_output_is_silent(stream: io.TextIOBase | None) -> None:
    out = SafeStream(stream)
    assert out.write("a") == 1
    out.flush()
    assert out.write("b") == 1


def test_a_character_that_cannot_be_shown_is_replaced() -> None:
    raw = io.BytesIO()
    out = SafeStream(io.TextIOWrapper(raw, encoding="ascii"))
    out.write("± 5")
    out.flush()
    assert raw.getvalue() == b"? 5"
