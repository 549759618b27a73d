"""Programs and scripts on plans that are right and on plans that are wrong; the programs are real files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from seatrial.preflight import programs
from seatrial.preflight.need import Need
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec
from tests.programs import make_program
from tests.unit.preflight.needs import by_name, make_need, make_run


def checked(*runs: RunSpec, caller: dict[str, str] | None = None) -> dict[str, Check]:
    return by_name(programs.checks(make_need(*runs, caller=caller)))


def test_a_host_without_a_plan_is_told_of_git_and_nvidia_smi(tmp_path: Path) -> None:
    found = by_name(programs.checks(Need(output=tmp_path)))
    assert list(found) == ["git", "nvidia-smi"] and all(check.ok for check in found.values())


def test_program_on_path_is_found(tmp_path: Path) -> None:
    program = make_program(tmp_path / "bin" / "starter")
    check = checked(make_run(tmp_path, script="train", program=("starter", "-x")), caller={"PATH": str(program.parent)})["program starter"]
    assert (check.ok, check.found) == (True, str(program))


def test_program_on_the_plans_own_path_is_found(tmp_path: Path) -> None:
    program = make_program(tmp_path / "bin" / "starter")
    env = {"PATH": f"{program.parent}:/usr/bin"}
    assert checked(make_run(tmp_path, script="train", program=("starter",), env=env))["program starter"].found == str(program)
    assert checked(make_run(tmp_path, script="starter", kind="command", env=env))["program starter"].ok


def test_plans_path_takes_the_place_of_the_callers(tmp_path: Path) -> None:
    here = {"PATH": str(make_program(tmp_path / "bin" / "starter").parent)}
    run = make_run(tmp_path, script="train", program=("starter",), env={"PATH": "/nowhere"})
    assert not checked(run, caller=here)["program starter"].ok


def test_relative_program_counts_from_the_runs_folder(tmp_path: Path) -> None:
    make_program(tmp_path / "run.sh")
    assert checked(make_run(tmp_path, script="./run.sh", kind="command"))["program ./run.sh"].ok
    assert not checked(make_run(tmp_path / "other", script="./run.sh", kind="command"))["program ./run.sh"].ok


def test_missing_program_is_told_with_its_fix(tmp_path: Path) -> None:
    make_program(tmp_path / "plain.sh", mode=0o644)
    runs = [make_run(tmp_path, script=name, kind="command") for name in ("no-such-program", "./gone.sh", "./plain.sh")]
    found = checked(*runs)
    assert found["program no-such-program"] == Check(
        name="program no-such-program",
        ok=False,
        found="not on PATH and not beside this Python",
        prevents="no-such-program: No such file or directory",
        fix="install no-such-program, activate the environment that has it, or give its full path",
    )
    assert found["program ./gone.sh"].found == f"no such file: {tmp_path / 'gone.sh'}"
    assert found["program ./plain.sh"].found == f"{tmp_path / 'plain.sh'} may not be executed"
    assert found["program ./plain.sh"].fix.startswith("check the path")


def test_missing_deepspeed_is_told_with_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    check = checked(make_run(tmp_path, script="t.py", kind="deepspeed", program=("deepspeed",)), caller={"PATH": "/nowhere"})[
        "program deepspeed"
    ]
    assert (check.ok, check.refuses, check.prevents) == (False, True, "deepspeed: No such file or directory")
    assert check.fix == "install deepspeed (pip install 'seatrial[stage1]'), activate the environment that has it, or give its full path"


def test_script_behind_a_command_is_not_taken_for_a_program(tmp_path: Path) -> None:
    run = make_run(tmp_path, script="train.py", kind="command", program=("sh",))
    assert [name for name in checked(run) if name.startswith("program")] == ["program sh"]


def test_one_check_for_runs_that_ask_the_same(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, script="t", program=("sh",)) for _ in range(3)]
    assert [check.name for check in programs.checks(make_need(*runs))].count("program sh") == 1


def test_script_must_lie_in_the_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("")
    found = checked(*(make_run(tmp_path, script=name) for name in ("here.py", "gone.py", "pkg.mod")))
    assert found["script here.py"].ok
    gone = found["script gone.py"]
    assert (gone.ok, gone.refuses, gone.found) == (False, True, f"no such file in {tmp_path}")
    assert "script pkg.mod" not in found


def test_users_script_under_our_torchrun_is_warned_of_and_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, script="pkg.train", kind="torchrun")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    check = checked(run)["program torchrun"]
    assert (check.ok, check.refuses, check.found) == (False, False, "this Python has no torch, so it cannot start torchrun")


def test_this_interpreter_by_its_path_is_a_program(tmp_path: Path) -> None:
    assert checked(make_run(tmp_path, bundled="dummy", program=(sys.executable,)))[f"program {sys.executable}"].ok
