"""Interpreters as they may answer, each with what a plan asks of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from seatrial.machine.interpreter import Interpreter
from seatrial.preflight import pythons
from seatrial.preflight.need import Need
from seatrial.preflight.pythons import UsedPython
from tests.unit.preflight.needs import by_name, make_need, make_run

CPU = Interpreter(python="3.12.1", packages={"torch": "2.13.0+cpu", "seatrial": "0.1.0"})
CUDA_13 = Interpreter(python="3.12.1", packages={"torch": "2.13.0", "seatrial": "0.1.0"}, torch_cuda="13.0")
BARE = Interpreter(python="3.12.1")


def judged(interpreter: Interpreter, takes: str = "", **asked: object) -> dict[str, tuple[bool, bool]]:
    """Name → ok, refuses."""
    used = UsedPython(interpreter=interpreter, **asked)  # type: ignore[arg-type]
    return {check.name: (check.ok, check.refuses) for check in pythons.judge(used, takes)}


def test_the_harness_tells_its_python(tmp_path: Path) -> None:
    check = by_name(pythons.checks(Need(output=tmp_path)))["Python"]
    assert check.ok and check.found.startswith(".".join(map(str, sys.version_info[:3])))


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


def test_driver_is_asked_for_nothing_without_a_driver() -> None:
    assert "driver for torch" not in judged(CUDA_13, "", asks_for_gpus=True)


def test_old_torch_is_told() -> None:
    old = Interpreter(python="3.11.1", packages={"torch": "2.4.1+cu121"}, torch_cuda="12.1")
    assert judged(old, workloads=("tiny_lm",))["torch version"] == (False, False)
    assert judged(CPU, workloads=("tiny_lm",))["torch version"] == (True, False)


def test_workloads_say_themselves_whether_they_need_torch(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, bundled="tiny_lm"), make_run(tmp_path, bundled="dummy"), make_run(tmp_path, script="train.py")]
    (used,) = pythons.pythons_of(make_need(*runs))
    assert (used.workloads, used.bundled, used.program) == (("tiny_lm",), True, "")


def test_torchrun_needs_torch_whatever_it_starts(tmp_path: Path) -> None:
    (used,) = pythons.pythons_of(make_need(make_run(tmp_path, bundled="dummy", kind="torchrun")))
    assert used.workloads == ("dummy",)


def test_the_python_that_was_typed_is_asked(tmp_path: Path) -> None:
    typed = make_run(tmp_path, script="train.py", program=(sys.executable,))
    plain = make_run(tmp_path, script="./a.out", kind="command")
    (used,) = pythons.pythons_of(make_need(typed, plain))
    assert used.program == sys.executable and used.interpreter.python == ".".join(map(str, sys.version_info[:3]))
