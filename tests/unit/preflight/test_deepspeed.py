"""DeepSpeed on this host: the package, GPUs by number, hidden GPUs and ninja."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from seatrial.machine import gpus
from seatrial.machine.gpus import HUNG_DRIVER, Driver, Gpu
from seatrial.machine.software import Interpreter
from seatrial.preflight import software
from seatrial.records.caution import Check
from seatrial.records.plan import RunSpec
from tests.unit.preflight.needs import by_name, make_need, make_run

TWO = Driver(gpus=(Gpu(index=0, uuid="GPU-0a"), Gpu(index=1, uuid="GPU-1a")))
NONE = Driver(problem="no GPU driver", no_driver=True)


@pytest.fixture(autouse=True)
def plain_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """deepspeed is installed, and there is no trace of a GPU."""
    for module in (software, gpus):
        monkeypatch.setattr(module, "DEVICE_FILE", tmp_path / "none")
    monkeypatch.setattr(software, "read_driver", lambda: NONE)
    monkeypatch.setattr(
        software, "find_interpreter", lambda program, cwd, env, start: Interpreter(python="3.11.7", packages={"deepspeed": "0.19.8"})
    )


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "read_driver", lambda: TWO)


def checked(*runs: RunSpec, base_env: dict[str, str] | None = None) -> dict[str, Check]:
    return by_name(software.check_deepspeed(make_need(*runs, base_env={"PATH": "/nowhere", **(base_env or {})})))


def run(cwd: Path = Path("/"), **more: object) -> RunSpec:
    return make_run(cwd, **{"kind": "deepspeed", "script": "t.py", "ranks": 2, **more})  # type: ignore[arg-type]


def ninja_in(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "ninja").write_text("#!/bin/sh\n")
    (folder / "ninja").chmod(0o755)
    return str(folder)


def test_who_does_not_use_it_is_asked_nothing() -> None:
    assert checked() == {} and checked(make_run(Path("/"), script="t.py")) == {}


def test_cpu_ranks_need_the_package_and_nothing_else() -> None:
    found = checked(run())
    assert {name: check.ok for name, check in found.items()} == {
        "deepspeed in this Python": True,
        "GPUs for deepspeed": True,
        "hidden GPUs under deepspeed": True,
    }
    assert found["deepspeed in this Python"].found == "deepspeed 0.19.8"


def test_without_the_package_it_is_refused_with_the_error_it_would_end_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "find_interpreter", lambda program, cwd, env, start: Interpreter(python="3.11.7"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check = checked(run())["deepspeed in this Python"]
    assert (check.ok, check.refuses, check.found) == (False, True, "not installed")
    assert check.prevents == "ModuleNotFoundError: No module named 'deepspeed'" and "pip install 'seatrial[stage1]'" in check.fix
    other = checked(run(program=("/opt/venv/bin/python", "-m", "deepspeed.launcher.runner")))[
        "deepspeed in the Python of /opt/venv/bin/python"
    ]
    assert (other.ok, other.refuses) == (False, False), "it may have it as a source tree"


def test_a_python_that_cannot_be_asked_is_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "find_interpreter", lambda program, cwd, env, start: Interpreter())
    assert "deepspeed in the Python of deepspeed" not in checked(run(program=("deepspeed",)))


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("more", "base_env", "found"),
    [
        ({}, {}, ""),
        ({"devices": ("0", "1")}, {}, ""),
        ({"ranks": 4}, {}, "2 visible GPUs, and 4 ranks need one each"),
        ({"ranks": 4, "env": {"DS_ACCELERATOR": "cpu"}}, {}, ""),
        ({}, {"CUDA_VISIBLE_DEVICES": "0"}, "CUDA_VISIBLE_DEVICES=0 shows 1 GPUs, and 2 ranks need one each"),
        ({}, {"CUDA_VISIBLE_DEVICES": "GPU-0a,GPU-1a"}, "'GPU-0a' is not a GPU index; deepspeed takes indices only"),
        ({}, {"CUDA_VISIBLE_DEVICES": ""}, ""),
        ({"bundled": "tiny_lm", "settings": {"device": "cpu"}, "ranks": 4}, {}, ""),
    ],
)
def test_a_gpu_for_each_rank(more: dict[str, object], base_env: dict[str, str], found: str) -> None:
    check = checked(run(**more), base_env=base_env)["GPUs for deepspeed"]
    assert (check.ok, check.refuses, check.found) == (not found, True, found or "as many as ranks, or CPU ranks")


def test_a_driver_that_does_not_answer_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "read_driver", lambda: HUNG_DRIVER)
    assert checked(run())["GPUs for deepspeed"].ok


@pytest.mark.usefixtures("two_gpus")
def test_gpus_that_deepspeed_would_show_again_are_reported() -> None:
    hides = {"CUDA_VISIBLE_DEVICES": ""}
    check = checked(run(), base_env=hides)["hidden GPUs under deepspeed"]
    assert (check.ok, check.refuses, check.found) == (False, False, "2 GPUs here, and CUDA_VISIBLE_DEVICES hides them")
    for other in (run(devices=("0", "1")), run(bundled="tiny_lm", settings={"device": "cpu"})):
        assert checked(other, base_env=hides)["hidden GPUs under deepspeed"].ok
    assert checked(run())["hidden GPUs under deepspeed"].ok


@pytest.mark.usefixtures("two_gpus")
def test_ninja_is_asked_for_where_a_gpu_is_used(tmp_path: Path) -> None:
    check = checked(run())["ninja"]
    assert (check.ok, check.refuses, check.found) == (False, False, "not on PATH")
    assert "Unable to JIT load the fused_adam op due to ninja not being installed" in check.prevents
    assert checked(run(), base_env={"PATH": ninja_in(tmp_path / "bin")})["ninja"].ok
    assert "ninja" not in checked(run(settings={"device": "cpu"}))
    engine = make_run(Path("/"), bundled="tiny_lm", kind="torchrun", settings={"engine": "deepspeed", "device": "auto"})
    assert not checked(engine)["ninja"].ok and "GPUs for deepspeed" not in checked(engine)


def test_two_different_ninjas_are_reported(tmp_path: Path, two_gpus: None) -> None:
    first, second = ninja_in(tmp_path / "a"), ninja_in(tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "ninja").symlink_to(f"{first}/ninja")
    check = checked(run(), base_env={"PATH": f"{first}:/nowhere:{second}"})["one ninja"]
    assert (check.ok, check.refuses, check.found) == (False, False, f"{first}/ninja and {second}/ninja")
    assert checked(run(), base_env={"PATH": f"{first}:{tmp_path / 'c'}"})["one ninja"].ok, "a link to the same is the same"
