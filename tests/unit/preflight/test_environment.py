"""Ports that are really taken, names that do not resolve, variables left over from another job."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from seatrial.core.fallback import FALLBACK_DIR
from seatrial.core.paths import SET_BY_USERS
from seatrial.history import rows
from seatrial.preflight import environment
from seatrial.preflight.environment import NameFacts
from seatrial.records.plan import RunSpec
from tests.unit.preflight.needs import by_name, make_need, make_run

HERE = Path("/")


@pytest.mark.parametrize("option", ["--master_port={}", "--master-port {}", "--rdzv-endpoint=localhost:{}"])
def test_a_port_the_plan_names_is_taken(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = make_run(HERE, script="t.py", kind="torchrun", launcher_args=tuple(option.format(port).split()))
        check = by_name(environment.check_ports(make_need(run)))[f"port {port}"]
        assert (check.ok, check.refuses, check.found) == (False, True, "in use")
        assert "EADDRINUSE" in check.prevents and f":{port}" in check.fix
    assert by_name(environment.check_ports(make_need(run)))[f"port {port}"].ok, "free again"


def test_ports_that_nobody_will_listen_on_are_not_asked_for() -> None:
    def checked(*runs: RunSpec) -> list[str]:
        return [check.name for check in environment.check_ports(make_need(*runs)) if check.name.startswith("port ")]

    standalone = make_run(HERE, script="t.py", kind="torchrun", launcher_args=("--standalone", "--master_port=29500"))
    any_port = make_run(HERE, script="t.py", kind="torchrun", launcher_args=("--rdzv-endpoint=localhost:0",))
    single = make_run(HERE, script="t.py", env={"MASTER_PORT": "29501"})
    elsewhere = make_run(HERE, script="t.py", kind="torchrun", launcher_args=("--rdzv-endpoint=head.example:29400",))
    several = make_run(HERE, script="t.py", env={"MASTER_PORT": "29502"}, ranks=2)
    assert checked(standalone, any_port, single, elsewhere, several) == ["port 29502"]
    run = make_run(HERE, script="t.py", kind="deepspeed", launcher_args=("--master_port", "29503"), env={"MASTER_PORT": "29504"})
    assert checked(run) == ["port 29503"]


def test_names() -> None:
    sound = by_name(environment.judge_name(NameFacts(name="node1", addresses=("10.0.0.4",))))
    assert sound["host name"].ok and sound["host address"].found == "not loopback"
    local = by_name(environment.judge_name(NameFacts(name="vm", addresses=("127.0.1.1",))))
    assert local["host name"].ok and local["host address"].ok and "loopback only" in local["host address"].found
    unknown = by_name(environment.judge_name(NameFacts(name="vm", problem="Name or service not known")))
    assert not unknown["host name"].ok and not unknown["host name"].refuses and "(vm and this host's address)" in unknown["host name"].fix
    foreign = by_name(environment.judge_name(NameFacts(name="vm", addresses=("192.0.2.1",), not_bindable=("192.0.2.1",))))
    assert not foreign["host name"].ok


def test_a_name_that_cannot_be_known() -> None:
    assert environment.resolve_name("no-such-host.invalid", timeout_s=30).problem


def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: answer.wait(60) and [])
    assert environment.resolve_name("vm", timeout_s=0.01).problem == "no answer in 0.01 s"
    answer.set()


LEFT = {"RANK": "0", "WORLD_SIZE": "8", "MASTER_PORT": "29500", "PET_NNODES": "4", "NODE_RANK": "1"}


@pytest.mark.parametrize(
    ("more", "misled_by"),
    [
        ({"kind": "torchrun", "ranks": 2}, ["PET_NNODES"]),
        ({"kind": "deepspeed", "ranks": 2}, ["NODE_RANK"]),
        ({"ranks": 2}, []),
        ({"ranks": 1}, ["MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"]),
        ({"kind": "command", "env": {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1"}}, ["NODE_RANK"]),
    ],
)
def test_left_over_variables_count_where_a_run_would_take_them(more: dict[str, object], misled_by: list[str]) -> None:
    assert environment.misleading(make_need(make_run(HERE, script="t.py", **more), base_env=LEFT)) == misled_by


def test_without_a_plan_every_left_over_is_reported() -> None:
    found = by_name(environment.check_variables(make_need(base_env={**LEFT, "SEATRIAL_RUN_DIR": "/x", "CUDA_LAUNCH_BLOCKING": "1"})))
    left = found["left-over variables"]
    assert (left.ok, left.refuses) == (False, False)
    assert left.fix == "unset MASTER_PORT NODE_RANK PET_NNODES RANK WORLD_SIZE" and "WORLD_SIZE=8" in left.found
    assert not found["SEATRIAL_ variables"].ok
    secret = {"PET_RDZV_TOKEN": "hunter2", "SEATRIAL_URL": "https://me:hunter2@host"}
    assert "hunter2" not in str(list(environment.check_variables(make_need(base_env=secret)))), "it is kept in preflight.json"
    assert found["debug variables"].found.startswith("CUDA_LAUNCH_BLOCKING=1: ")


def test_a_plan_may_switch_off_what_slows() -> None:
    run = make_run(HERE, script="t.py", env={"CUDA_LAUNCH_BLOCKING": "0"})
    assert environment.slowing(make_need(run, base_env={"CUDA_LAUNCH_BLOCKING": "1"})) == {}


@pytest.mark.parametrize(("name", "value"), [("NCCL_DEBUG", "INFO"), ("TORCH_DISTRIBUTED_DEBUG", "INFO"), ("NSYS_RUN_ID", "7")])
def test_what_compare_would_refuse_to_mix_is_warned_of_before_it_is_measured(name: str, value: str) -> None:
    slow = by_name(environment.check_variables(make_need(make_run(HERE, script="t.py"), base_env={name: value})))["debug variables"]
    assert (slow.ok, slow.refuses) == (False, False)
    assert slow.found.startswith(f"{name}={value}: ") and "only compared with others that have it on" in slow.prevents


def test_what_an_axis_of_the_plan_switches_on_is_meant() -> None:
    run = make_run(HERE, script="t.py", env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET"}, varied=("NCCL_DEBUG",))
    assert environment.slowing(make_need(run)) == {}


def test_variables_that_users_set_are_no_left_overs_of_a_run() -> None:
    assert {FALLBACK_DIR, rows.VARIABLE} == SET_BY_USERS
    need = make_need(base_env=dict.fromkeys(SET_BY_USERS, "/somewhere"))
    assert by_name(environment.check_variables(need))["SEATRIAL_ variables"].ok
