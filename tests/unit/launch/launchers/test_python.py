"""`python`: one process a rank, and what each is told."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from seatrial.launch.launchers import python
from seatrial.records.run_spec import HostSpec
from tests.unit.launch.factory import allocation_for, attempt_in, hosts_allocation, make_spec, on_hosts

CWD = Path("/job")
ATTEMPT = attempt_in(CWD)
HOSTS = (HostSpec(name="n0", ranks=1), HostSpec(name="n1", ranks=2))


def test_the_program_is_the_launchers_own_else_that_of_the_place_else_this_interpreter() -> None:
    plain = make_spec(CWD, launcher_args=("-u",), args=("--bs", "8"))
    there = replace(plain, place=replace(plain.place, python="/env/bin/python"))
    named = replace(there, launcher=replace(there.launcher, program=("pypy", "-X", "dev")))
    rest = ("-u", "train.py", "--bs", "8")
    for spec, program in ((plain, (sys.executable,)), (there, ("/env/bin/python",)), (named, ("pypy", "-X", "dev"))):
        assert python.words(spec, allocation_for(spec), ATTEMPT, {}) == (*program, *rest)


def test_one_rank_runs_as_it_would_without_seatrial() -> None:
    spec = make_spec(CWD)
    assert python.overlays(spec, allocation_for(spec)) == ({},)


def test_ranks_of_the_second_host_count_on_from_those_of_the_first() -> None:
    spec = on_hosts(make_spec(CWD), HOSTS)
    (first,), second = (python.overlays(spec, hosts_allocation(spec, node)) for node in (0, 1))
    shared = {"WORLD_SIZE": "3", "MASTER_ADDR": "n0", "MASTER_PORT": "29650"}
    assert first == {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **shared}
    assert [(one["RANK"], one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) for one in second] == [("1", "0", "2"), ("2", "1", "2")]


def test_a_rendezvous_that_the_plan_names_is_left_to_it() -> None:
    spec = make_spec(CWD, ranks=2, env={"MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "1"})
    assert all(not {"MASTER_ADDR", "MASTER_PORT"} & {*overlay} for overlay in python.overlays(spec, allocation_for(spec)))


def test_there_are_no_rank_files_to_follow() -> None:
    assert python.rank_logs(make_spec(CWD, ranks=2), ATTEMPT) is None
