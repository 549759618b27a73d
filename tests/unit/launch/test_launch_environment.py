"""Which variables reach the ranks, and who set each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seatrial.launch.launchers.environment import environment, tuning_variables
from seatrial.records.launch import EnvironmentVariable
from seatrial.records.plan import LimitsSpec
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec

CWD = Path("/w")
ATTEMPT = attempt_in(CWD)


def _variables(caller: dict[str, str], limits: LimitsSpec | None = None, **choices: object) -> dict[str, EnvironmentVariable]:
    spec = make_spec(CWD, **choices)  # type: ignore[arg-type]
    spec = dataclasses.replace(spec, limits=limits or spec.limits)
    found = environment(spec, allocation_for(spec), ATTEMPT, caller)
    assert [variable.name for variable in found] == sorted({variable.name for variable in found})
    return {variable.name: variable for variable in found}


def test_probe_learns_where_it_is() -> None:
    found = _variables({}, steps=200, rank_scope="rank0")
    expected = {name: variable.value for name, variable in found.items() if name.startswith("SEATRIAL_")}
    assert expected == {
        "SEATRIAL_RUN_DIR": str(ATTEMPT.folder),
        "SEATRIAL_RUN": "mb8_r1",
        "SEATRIAL_ATTEMPT": "1",
        "SEATRIAL_RANK_SCOPE": "rank0",
        "SEATRIAL_SYNC_TIMING": "0",
        "SEATRIAL_PHASE_EVERY": "10",
        "SEATRIAL_TIMING_WINDOW": "100",
        "SEATRIAL_STACK_SIGNAL": "USR2",
        "SEATRIAL_ETA_MODE": "rank0",
        "SEATRIAL_ETA_MIN_SAMPLES": "10",
    }
    assert {found[name].set_by for name in expected} == {"seatrial"}


def test_callers_variables_are_recorded_where_they_matter() -> None:
    caller = {"NCCL_P2P_DISABLE": "1", "HF_HOME": "/hf", "TORCH_LOGS": "x", "HOME": "/home/me", "MASTER_PORT": "9", "RANK": "0"}
    found = _variables(caller)
    assert {name for name, variable in found.items() if variable.set_by == "caller"} == set(caller) - {"HOME"}


def test_defaults_give_way_to_the_caller() -> None:
    found = _variables({"PYTHONUNBUFFERED": "0", "OMP_NUM_THREADS": "8"}, ranks=2)
    assert (found["PYTHONUNBUFFERED"].value, found["PYTHONUNBUFFERED"].set_by) == ("0", "caller")
    assert (found["OMP_NUM_THREADS"].value, found["OMP_NUM_THREADS"].set_by) == ("8", "caller")


def test_pythons_fault_handler_is_on_unless_caller_or_plan_set_it() -> None:
    found = _variables({})
    assert (found["PYTHONFAULTHANDLER"].value, found["PYTHONFAULTHANDLER"].set_by) == ("1", "seatrial")
    assert _variables({"PYTHONFAULTHANDLER": ""})["PYTHONFAULTHANDLER"].set_by == "caller"
    assert _variables({}, env={"PYTHONFAULTHANDLER": ""})["PYTHONFAULTHANDLER"] == EnvironmentVariable(
        name="PYTHONFAULTHANDLER", value="", set_by="plan"
    )


@pytest.mark.parametrize(("name", "expected"), [("WINCH", "WINCH"), (None, "none")])
def test_the_probe_is_given_the_signal_to_write_its_stacks(name: str | None, expected: str) -> None:
    found = _variables({"SEATRIAL_STACK_SIGNAL": "URG"}, limits=LimitsSpec(stack_signal=name))
    assert (found["SEATRIAL_STACK_SIGNAL"].value, found["SEATRIAL_STACK_SIGNAL"].replaced) == (expected, "URG")
    own = _variables({}, limits=LimitsSpec(stack_signal=name), env={"SEATRIAL_STACK_SIGNAL": "IO"})
    assert (own["SEATRIAL_STACK_SIGNAL"].value, own["SEATRIAL_STACK_SIGNAL"].set_by) == ("IO", "plan")


def test_threads_are_limited_only_where_ranks_share_the_machine() -> None:
    assert _variables({}, ranks=2)["OMP_NUM_THREADS"].value == "1"
    assert "OMP_NUM_THREADS" not in _variables({}, ranks=1)


def test_devices_are_shown_and_none_are_hidden_from_cpu_ranks() -> None:
    assert _variables({}, devices=("0", "2"))["CUDA_VISIBLE_DEVICES"].value == "0,2"
    assert "CUDA_VISIBLE_DEVICES" not in _variables({}, ranks=4)
    deepspeed = _variables({}, kind="deepspeed", devices=("0", "2"), ranks=2)
    assert "CUDA_VISIBLE_DEVICES" not in deepspeed, "deepspeed sets them itself"


def test_deepspeed_is_set_to_cpu_where_no_gpu_is_to_be_used() -> None:
    def accelerator(caller: dict[str, str], cpu_only: bool, kind: str = "deepspeed") -> tuple[str, str] | None:
        spec = make_spec(CWD, kind=kind, ranks=2)
        allocation = dataclasses.replace(allocation_for(spec), cpu_only=cpu_only)
        found = {variable.name: variable for variable in environment(spec, allocation, ATTEMPT, caller)}.get("DS_ACCELERATOR")
        return (found.value, found.set_by) if found else None

    assert accelerator({}, cpu_only=True) == ("cpu", "seatrial")
    assert accelerator({"DS_ACCELERATOR": "cuda"}, cpu_only=True) == ("cuda", "caller")
    assert accelerator({}, cpu_only=False) is None
    assert accelerator({}, cpu_only=True, kind="torchrun") is None


def test_plan_wins_and_what_it_replaced_is_recorded() -> None:
    found = _variables({"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}, env={"NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"})
    assert found["NCCL_DEBUG"] == EnvironmentVariable(name="NCCL_DEBUG", value="WARN", set_by="plan", replaced="INFO")
    assert found["NCCL_ALGO"] == EnvironmentVariable(name="NCCL_ALGO", value="Ring", set_by="plan", replaced=None)


def test_place_replaces_the_callers_devices_and_the_plan_the_places() -> None:
    found = _variables({"CUDA_VISIBLE_DEVICES": "7"}, devices=("0",))
    assert (found["CUDA_VISIBLE_DEVICES"].set_by, found["CUDA_VISIBLE_DEVICES"].replaced) == ("place", "7")
    assert _variables({}, devices=("0",), env={"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"].set_by == "plan"


def test_variables_that_tune_a_run_are_separated_from_those_that_locate_it() -> None:
    caller = {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0", "TORCH_HOME": "/x", "HF_HOME": "/y", "EDITOR": "vi"}
    spec = make_spec(Path("/x"), env={"OMP_NUM_THREADS": "1"})
    caller["TORCH_API_KEY"] = "abc"
    assert tuning_variables(spec, caller) == {"NCCL_ALGO": "Ring", "TORCH_API_KEY": "***"}, (
        "the plan's own values are part of the run's identity instead"
    )
