"""`command`: the program as typed, once, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.errors import LaunchError
from seatrial.launch.launchers import command
from seatrial.records.run_spec import HostSpec
from tests.unit.launch.factory import allocation_for, attempt_in, hosts_allocation, make_spec, on_hosts

CWD = Path("/job")
ATTEMPT = attempt_in(CWD)


def test_program_options_and_script_stand_as_they_were_typed() -> None:
    spec = make_spec(CWD, kind="command", program=("srun", "-n2"), launcher_args=("--label",), script="./go", args=("a b", ""))
    assert command.words(spec, allocation_for(spec), ATTEMPT, {}) == ("srun", "-n2", "--label", "./go", "a b", "")


def test_many_ranks_are_one_process_and_its_own_affair() -> None:
    spec = make_spec(CWD, kind="command", ranks=8)
    assert command.overlays(spec, allocation_for(spec)) == ({},) and command.rank_logs(spec, ATTEMPT) is None


def test_many_hosts_are_refused_with_the_launchers_that_can() -> None:
    spec = on_hosts(make_spec(CWD, kind="command"), (HostSpec(name="n0", ranks=1),))
    with pytest.raises(LaunchError, match="on many hosts use python, torchrun or deepspeed"):
        command.words(spec, hosts_allocation(spec, 0), ATTEMPT, {})


def test_nothing_to_start_names_the_run() -> None:
    spec = make_spec(CWD, kind="command", script=None)
    with pytest.raises(LaunchError, match=r"run mb8_r1 has nothing to start: give workload\.script"):
        command.words(spec, allocation_for(spec), ATTEMPT, {})


def test_a_bundled_module_starts_where_the_interpreter_is_named() -> None:
    spec = make_spec(CWD, kind="command", module="seatrial_workloads.dummy.train")
    with pytest.raises(LaunchError, match="name the interpreter as its program"):
        command.words(spec, allocation_for(spec), ATTEMPT, {})
    spec = make_spec(CWD, kind="command", module="seatrial_workloads.dummy.train", program=("python3",))
    assert command.words(spec, allocation_for(spec), ATTEMPT, {})[:3] == ("python3", "-m", "seatrial_workloads.dummy.train")
