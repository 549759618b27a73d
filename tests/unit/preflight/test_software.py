"""Programs, scripts and Pythons on this host."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from seatrial.machine.software import Interpreter
from seatrial.preflight import software
from seatrial.preflight.check_definition import Need
from seatrial.preflight.software import UsedPython
from seatrial.records.caution import Check
from seatrial.records.plan import RunSpec
from tests.facts import states
from tests.programs import make_program
from tests.unit.preflight.needs import by_name, make_need, make_run


def checked(*runs: RunSpec, base_env: dict[str, str] | None = None) -> dict[str, Check]:
    return by_name(software.check_programs(make_need(*runs, base_env=base_env)))


def test_a_host_without_a_plan_is_checked_for_git_and_nvidia_smi(tmp_path: Path) -> None:
    found = by_name(software.check_programs(Need(output=tmp_path)))
    assert list(found) == ["git", "nvidia-smi"] and all(check.ok for check in found.values())


def test_program_on_the_plans_own_path_is_found(tmp_path: Path) -> None:
    program = make_program(tmp_path / "bin" / "starter")
    env = {"PATH": f"{program.parent}:/usr/bin"}
    assert checked(make_run(tmp_path, script="train", program=("starter",), env=env))["program starter"].found == str(program)
    assert checked(make_run(tmp_path, script="starter", kind="command", env=env))["program starter"].ok


def test_plans_path_takes_the_place_of_the_callers(tmp_path: Path) -> None:
    here = {"PATH": str(make_program(tmp_path / "bin" / "starter").parent)}
    run = make_run(tmp_path, script="train", program=("starter",), env={"PATH": "/nowhere"})
    assert not checked(run, base_env=here)["program starter"].ok


def test_relative_program_counts_from_the_runs_folder(tmp_path: Path) -> None:
    make_program(tmp_path / "run.sh")
    assert checked(make_run(tmp_path, script="./run.sh", kind="command"))["program ./run.sh"].ok
    assert not checked(make_run(tmp_path / "other", script="./run.sh", kind="command"))["program ./run.sh"].ok


def test_missing_program_is_reported_with_its_fix(tmp_path: Path) -> None:
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


def test_missing_deepspeed_is_reported_with_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    check = checked(make_run(tmp_path, script="t.py", kind="deepspeed", program=("deepspeed",)), base_env={"PATH": "/nowhere"})[
        "program deepspeed"
    ]
    assert (check.ok, check.refuses, check.prevents) == (False, True, "deepspeed: No such file or directory")
    assert states(check.fix, "pip install 'seatrial[stage1]'", "full path")


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


CPU = Interpreter(python="3.12.1", packages={"torch": "2.13.0+cpu", "seatrial": "0.1.0"})
CUDA_13 = Interpreter(python="3.12.1", packages={"torch": "2.13.0", "seatrial": "0.1.0"}, torch_cuda="13.0")
BARE = Interpreter(python="3.12.1")


def judged(interpreter: Interpreter, takes: str = "", **uses: object) -> dict[str, tuple[bool, bool]]:
    """Name → ok, refuses."""
    used = UsedPython(interpreter=interpreter, **uses)  # type: ignore[arg-type]
    return {check.name: (check.ok, check.refuses) for check in software.judge_python(used, takes)}


def test_bundled_workload_without_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    assert judged(BARE, workloads=("tiny_lm",)) == {"torch for tiny_lm": (False, True)}


def test_bundled_workload_in_a_python_without_seatrial_is_refused() -> None:
    found = judged(BARE, workloads=("tiny_lm",), program="/opt/bin/python", bundled=True)
    assert found["seatrial in the Python of /opt/bin/python"] == (False, False)
    assert found["torch for tiny_lm"] == (False, True)
    assert judged(CPU, workloads=("tiny_lm",), program="/opt/bin/python", bundled=True)["seatrial in the Python of /opt/bin/python"][0]


def test_a_python_that_does_not_answer_is_left_to_the_run() -> None:
    assert judged(Interpreter(), workloads=("tiny_lm",), program="odd") == {}


def test_cpu_build_while_gpus_are_asked_for() -> None:
    assert judged(CPU, workloads=("tiny_lm",), asks_for_gpus=True)["CUDA build of torch"] == (False, True)
    assert judged(CPU, asks_for_gpus=True)["CUDA build of torch"] == (False, False), "a script may need no torch"
    assert "CUDA build of torch" not in judged(CPU, workloads=("tiny_lm",))


@pytest.mark.parametrize(("takes", "ok"), [("12.8", False), ("13.0", True), ("14.1", True)])
def test_driver_older_than_the_cuda_torch_was_built_for(takes: str, ok: bool) -> None:
    assert judged(CUDA_13, takes, workloads=("tiny_lm",), asks_for_gpus=True)["driver for torch"] == (ok, True)


def test_old_torch_is_reported() -> None:
    old = Interpreter(python="3.11.1", packages={"torch": "2.4.1+cu121"}, torch_cuda="12.1")
    assert judged(old, workloads=("tiny_lm",))["torch version"] == (False, False)
    assert judged(CPU, workloads=("tiny_lm",))["torch version"] == (True, False)


def test_workloads_say_themselves_whether_they_need_torch(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, bundled="tiny_lm"), make_run(tmp_path, bundled="dummy"), make_run(tmp_path, script="train.py")]
    (used,) = software.pythons_of(make_need(*runs))
    assert (used.workloads, used.bundled, used.program) == (("tiny_lm",), True, "")
    (used,) = software.pythons_of(make_need(make_run(tmp_path, bundled="dummy", kind="torchrun")))
    assert used.workloads == ("dummy",), "torchrun needs torch whatever it starts"


def test_the_python_that_was_typed_is_asked(tmp_path: Path) -> None:
    typed = make_run(tmp_path, script="train.py", program=(sys.executable,))
    plain = make_run(tmp_path, script="./a.out", kind="command")
    (used,) = software.pythons_of(make_need(typed, plain))
    assert used.program == sys.executable and used.interpreter.python == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("argv", "warns"),
    [
        (("bash", "-c", "torchrun train.py | tee log"), True),
        (("/bin/sh", "-ec", "python train.py 2>&1 |tee log"), True),
        (("bash", "-lc", "python train.py |& tee log"), True),
        (("bash", "-c", "set -o pipefail; python train.py | tee log"), False),
        (("bash", "-o", "pipefail", "-c", "python train.py | tee log"), False),
        (("bash", "-eo", "pipefail", "-c", "python train.py | tee log"), False),
        (("bash", "-c", "python train.py || exit 3"), False),
        (("bash", "-c", "python train.py --pattern 'a | b'"), False),
        (("python", "train.py", "--pattern", "a | b"), False),
        (("bash", "-c", "python train.py | tee log; exit ${PIPESTATUS[0]}"), False),
        (("bash", "-c", "python train.py || true"), True),
        (("bash", "-ec", "python train.py || :"), True),
        (("bash", "-c", "python train.py; echo done"), True),
        (("sh", "-c", "cd x\npython train.py\necho 'all | done';\n"), True),
        (("bash", "-c", "python train.py --note 'a; echo b'"), False),
        (("bash", "-c", "python train.py; code=$?; echo done; exit $code"), False),
        (("bash", "-c", "set -e; python train.py; echo done"), False),
        (("bash", "-ec", "python train.py; echo done"), False),
        (("bash", "-c", "python train.py && echo done"), False),
        (("bash", "-c", "echo start; python train.py"), False),
        (("bash", "-c", "echo start"), False),
    ],
)
def test_a_shell_that_loses_the_exit_code_is_warned_of(tmp_path: Path, argv: tuple[str, ...], warns: bool) -> None:
    found = checked(make_run(tmp_path, script=argv[0], args=argv[1:], kind="command")).get("pipeline")
    assert (found is not None) is warns
    assert found is None or (not found.ok and not found.refuses and "pipefail" in found.fix)
