"""Quoting, finding programs, and small commands with a timeout."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.core import shell
from tests.processes import is_gone
from tests.programs import make_program
from tests.waiting import wait_until


def test_quoted_words_come_back_from_a_real_shell() -> None:
    words = ["it's", "a b", "$HOME", "*", "", 'say "x"', "line\nbreak"]
    assert shlex.split(shell.quote(words)) == words
    line = f"printf '%s|' {shell.quote(words)}"
    assert subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout == "|".join(words) + "|"


def test_assignments_are_quoted_and_in_name_order() -> None:
    assert shell.export_lines({"B": "a b", "A": "$x"}) == ["export A='$x'", "export B='a b'"]


def test_program_on_the_given_path_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = make_program(tmp_path / "ours" / "starter"), make_program(tmp_path / "theirs" / "starter")
    monkeypatch.setenv("PATH", str(ours.parent))
    assert shell.find_program("starter") == str(ours)
    assert shell.find_program("starter", path=str(theirs.parent)) == str(theirs)
    assert shell.find_program("starter", path=str(tmp_path)) is None
    assert shell.find_program("starter", path="") is None


def test_relative_path_entries_and_names_count_from_cwd(tmp_path: Path) -> None:
    program = make_program(tmp_path / "bin" / "starter")
    assert shell.find_program("starter", path="/nowhere:bin", cwd=tmp_path) == str(program)
    assert shell.find_program("starter", path="/nowhere:", cwd=tmp_path / "bin") == str(program)
    assert shell.find_program("bin/starter", cwd=tmp_path) == str(program)
    assert shell.find_program("./starter", cwd=tmp_path) is None
    assert shell.find_program(str(program), path="/nowhere", cwd=Path("/")) == str(program)


def test_what_may_not_be_executed_is_no_program(tmp_path: Path) -> None:
    make_program(tmp_path / "plain", mode=0o644)
    assert shell.find_program("plain", path=str(tmp_path)) is None
    assert shell.find_program("./plain", cwd=tmp_path) is None
    assert shell.find_program("/", cwd=tmp_path) is None


def test_beside_this_interpreter_when_path_lacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = make_program(tmp_path / "only-here")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert shell.find_program("only-here", path="/nowhere") == str(beside)
    assert shell.find_on_path("only-here", path="/nowhere") is None
    assert shell.find_program("./only-here", cwd=Path("/")) is None


def test_output_of_a_small_command(tmp_path: Path) -> None:
    text = "import os; print(os.getcwd(), os.environ['A'])"
    assert shell.command_output([sys.executable, "-c", text], cwd=tmp_path, env={"A": "b"}) == f"{tmp_path} b\n"
    assert shell.command_output([sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\xff')"]) == "�"


@pytest.mark.parametrize("argv", [["/no/such/program"], ["/"], [sys.executable, "-c", "print(1); raise SystemExit(3)"]])
def test_no_output_of_what_fails(argv: list[str]) -> None:
    assert shell.command_output(argv) is None


def test_command_that_waits_is_given_up_and_gets_no_input() -> None:
    assert shell.command_output([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2) is None
    assert shell.command_output([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"]) == "''\n"


def test_a_wrapper_that_is_given_up_takes_its_children_along(tmp_path: Path) -> None:
    pid, late = tmp_path / "pid", tmp_path / "late"
    child = shell.quote([sys.executable, "-c", f"import time; time.sleep(60); open({str(late)!r}, 'w')"])
    assert shell.command_output(["sh", "-c", f"{child} & echo $! > {pid}; wait"], timeout_s=0.5) is None
    # KILL was sent; on a busy machine the kernel takes a moment to carry it out.
    wait_until(lambda: is_gone(int(pid.read_text())), "the child ends")
    assert not late.exists(), "it ended by itself"


@pytest.mark.parametrize(("argv", "timeout_s"), [(["yes"], 60.0), (["sh", "-c", "exec >&-; sleep 60"], 0.3)])
def test_a_command_that_writes_or_stays_without_end_is_killed(argv: list[str], timeout_s: float) -> None:
    with pytest.raises(shell.RunawayCommandError):
        shell.command_output_bytes(argv, timeout_s=timeout_s, max_bytes=1 << 20)


def test_a_process_is_waited_for_then_killed() -> None:
    with subprocess.Popen(["true"]) as process:
        assert shell.wait_for_exit(process, 60.0) and shell.wait_for_exit(process, -1.0) and shell.wait_or_kill(process, 0.0, 0.0)
    assert process.returncode == 0
    with subprocess.Popen(["sleep", "600"]) as process:
        assert not shell.wait_for_exit(process, 0.0)
        assert shell.wait_or_kill(process, 0.0, 60.0)
    assert process.returncode == -9


def test_a_process_that_even_kill_does_not_end_is_not_waited_for() -> None:
    class Unkillable(subprocess.Popen[bytes]):
        def kill(self) -> None:
            """In a call that the kernel cannot interrupt."""

    with Unkillable(["sleep", "600"]) as process:
        assert not shell.wait_or_kill(process, 0.0, 0.0)
        process.send_signal(9)
