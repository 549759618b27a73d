"""Each check on a plan that is right and on one that is wrong; programs and folders are real."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.machine.interpreter import Interpreter
from seatrial.preflight import checks
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.check import Check
from seatrial.records.run_spec import LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec

BUNDLED = "seatrial_workloads.{}.train"


def make_run(cwd: Path, *, script: str | None = None, bundled: str | None = None, **more: Any) -> RunSpec:
    launcher = LauncherSpec(kind=more.pop("kind", "python"), program=more.pop("program", ()))
    place = PlaceSpec(devices=more.pop("devices", ()))
    workload = WorkloadSpec(name=bundled or script or "", script=script, module=BUNDLED.format(bundled) if bundled else None)
    return RunSpec(run="base_r1", group="base", repeat=1, plan="p", workload=workload, launcher=launcher, place=place, cwd=str(cwd), **more)


def checked(cwd: Path, *runs: RunSpec, output: Path | None = None) -> dict[str, Check]:
    plan = CampaignPlan(name="p", output=str(output or cwd / "out"), runs=runs)
    return {check.name: check for check in checks.run_checks(plan)}


def make_program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))


def test_plain_plan_is_asked_about_its_folder_and_disk_only(tmp_path: Path) -> None:
    found = checked(tmp_path, make_run(tmp_path, bundled="dummy"))
    assert list(found) == [f"folder {tmp_path / 'out'}", "disk space"]
    assert all(check.ok for check in found.values())
    assert not (tmp_path / "out").exists(), "checks change nothing"


def test_program_on_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_program(tmp_path / "bin" / "starter")
    monkeypatch.setenv("PATH", str(program.parent))
    check = checked(tmp_path, make_run(tmp_path, script="train", program=("starter", "-x")))["program starter"]
    assert (check.ok, check.found) == (True, str(program))


def test_program_on_the_plans_own_path_is_found(tmp_path: Path) -> None:
    program = make_program(tmp_path / "bin" / "starter")
    env = {"PATH": f"{program.parent}:/usr/bin"}
    assert checked(tmp_path, make_run(tmp_path, script="train", program=("starter",), env=env))["program starter"].found == str(program)
    assert checked(tmp_path, make_run(tmp_path, script="starter", kind="command", env=env))["program starter"].ok


def test_plans_path_takes_the_place_of_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(make_program(tmp_path / "bin" / "starter").parent))
    run = make_run(tmp_path, script="train", program=("starter",), env={"PATH": "/nowhere"})
    assert not checked(tmp_path, run)["program starter"].ok


def test_relative_program_counts_from_the_runs_folder(tmp_path: Path) -> None:
    make_program(tmp_path / "run.sh")
    assert checked(tmp_path, make_run(tmp_path, script="./run.sh", kind="command"))["program ./run.sh"].ok
    assert not checked(tmp_path, make_run(tmp_path / "other", script="./run.sh", kind="command"))["program ./run.sh"].ok


def test_missing_program_is_told_with_its_fix(tmp_path: Path) -> None:
    make_program(tmp_path / "plain.sh", mode=0o644)
    runs = [make_run(tmp_path, script=name, kind="command") for name in ("no-such-program", "./gone.sh", "./plain.sh")]
    found = checked(tmp_path, *runs)
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


def test_script_behind_a_command_is_not_taken_for_a_program(tmp_path: Path) -> None:
    run = make_run(tmp_path, script="train.py", kind="command", program=("sh",))
    assert [name for name in checked(tmp_path, run) if name.startswith("program")] == ["program sh"]


def test_one_check_for_runs_that_ask_the_same(tmp_path: Path) -> None:
    plan = CampaignPlan(name="p", output=str(tmp_path), runs=tuple(make_run(tmp_path, script="t", program=("sh",)) for _ in range(3)))
    assert [check.name for check in checks.run_checks(plan)].count("program sh") == 1


def test_script_must_lie_in_the_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("")
    found = checked(
        tmp_path, make_run(tmp_path, script="here.py"), make_run(tmp_path, script="gone.py"), make_run(tmp_path, script="pkg.mod")
    )
    assert found["script here.py"].ok
    assert (found["script gone.py"].ok, found["script gone.py"].found) == (False, f"no such file in {tmp_path}")
    assert "script pkg.mod" not in found


def test_workloads_say_themselves_whether_they_need_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(monkeypatch)
    found = checked(tmp_path, make_run(tmp_path, bundled="tiny_lm"), make_run(tmp_path, bundled="dummy"))
    assert (found["torch for tiny_lm"].ok, found["torch for tiny_lm"].found) == (False, "not installed in this Python")
    assert "torch for dummy" not in found


def test_torchrun_needs_torch_whatever_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(monkeypatch)
    assert not checked(tmp_path, make_run(tmp_path, bundled="dummy", kind="torchrun"))["torch for dummy"].ok


def test_torch_is_looked_for_in_the_python_that_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(monkeypatch)
    answers = {
        "with": Interpreter(python="3.12.1", packages={"torch": "2.13.0"}),
        "bare": Interpreter(python="3.12.1"),
        "odd": Interpreter(),
    }
    monkeypatch.setattr(checks, "interpreter_of", lambda program, cwd, env: answers[program[0]])
    found = {name: checked(tmp_path, make_run(tmp_path, bundled="tiny_lm", program=(name,))).get("torch for tiny_lm") for name in answers}
    assert found["with"] and found["with"].ok
    assert found["bare"] and (found["bare"].ok, found["bare"].found) == (False, "not installed in the Python of bare")
    assert found["odd"] is None


def test_users_script_under_our_torchrun_is_told_and_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, script="pkg.train", kind="torchrun")
    without_torch(monkeypatch)
    check = checked(tmp_path, run)["program torchrun"]
    assert (check.ok, check.found) == (True, "this Python has no torch, so it cannot start torchrun")
    monkeypatch.setattr(checks, "_has_torch", lambda: True)
    assert checked(tmp_path, run)["program torchrun"].found == "torch.distributed.run of this Python"


def test_gpus_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "list_gpus", lambda: (SimpleNamespace(index=0), SimpleNamespace(index=1)))
    assert checked(tmp_path, make_run(tmp_path, bundled="dummy", devices=("0", "1", "GPU-aa")))["GPUs"].ok
    check = checked(tmp_path, make_run(tmp_path, bundled="dummy", devices=("1", "2")))["GPUs"]
    assert (check.ok, check.found) == (False, "2 here (0, 1), 1, 2 asked for")


def test_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    # Root, as in a container, may write anywhere, whatever the mode of the folder.
    monkeypatch.setattr(os, "access", lambda path, mode: path != locked)
    check = checked(tmp_path, make_run(tmp_path, bundled="dummy"), output=locked / "a" / "b")[f"folder {locked / 'a' / 'b'}"]
    assert (check.ok, check.found) == (False, f"{locked} cannot be written to")


def test_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert not checked(tmp_path, make_run(tmp_path, bundled="dummy"), output=tmp_path / "taken")[f"folder {tmp_path / 'taken'}"].ok


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 20))
    check = checked(tmp_path, make_run(tmp_path, bundled="dummy"))["disk space"]
    assert (check.ok, check.prevents) == (False, "OSError: [Errno 28] No space left on device")


def test_this_interpreter_by_its_path_is_a_program(tmp_path: Path) -> None:
    assert checked(tmp_path, make_run(tmp_path, bundled="dummy", program=(sys.executable,)))[f"program {sys.executable}"].ok
