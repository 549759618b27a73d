"""How and where processes start: options that are Seatrial's to give, ports, GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.options import deepspeed, torchrun
from seatrial.plan.checks_of_place import GIVEN_BY_SEATRIAL, GIVEN_ON_MANY_HOSTS, check_launcher, check_place
from seatrial.plan.schema import Launcher, Place, Plan, Workload

HOSTS: dict[str, Any] = {"kind": "hostfile", "hostfile": "hosts"}


def plan(kind: str, *words: str, place: dict[str, Any] | None = None, program: tuple[str, ...] = ()) -> Plan:
    launcher = Launcher(kind=kind, args=list(words), program=list(program))
    return Plan(name="x", workload=Workload(script="t.py"), launcher=launcher, place=Place(**(place or {})))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (plan("command", "--x"), "launcher.args: has no meaning for launcher 'command'"),
        (plan("command", program=("sh",)), "launcher.program: has no meaning for launcher 'command'"),
        (plan("torchrun", "--nproc_per_node", "2"), "launcher.args[0]: '--nproc_per_node' is Seatrial's to give: place.ranks says"),
        (plan("torchrun", "--nproc-per-node={n}"), "launcher.args[0]: '--nproc-per-node={n}' is Seatrial's to give"),
        (plan("torchrun", "--nnodes=2"), "launcher.args[0]: '--nnodes=2' is Seatrial's to give: `place: {kind: hostfile"),
        (plan("torchrun", "--rdzv_backend", "c10d", place=HOSTS), "launcher.args[0]: '--rdzv_backend' is Seatrial's to give: place.master"),
        (plan("torchrun", "--nproc_per_node", "gpu", place=HOSTS), "launcher.args[0]: '--nproc_per_node' is Seatrial's to give"),
        (plan("deepspeed", "--num_gpus", "2"), "launcher.args[0]: '--num_gpus' is Seatrial's to give: place.ranks says"),
        (plan("deepspeed", "--include=localhost:0"), "launcher.args[0]: '--include=localhost:0' is Seatrial's to give: place.include"),
    ],
)
def test_an_option_that_is_given_from_elsewhere_names_the_key(asked: Plan, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_launcher(asked)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "asked",
    [
        plan("python", "-X", "dev"),
        plan("torchrun", "--max-restarts", "0"),
        plan("torchrun", "--nproc_per_node", "gpu"),
        plan("torchrun", "--rdzv_backend", "c10d"),
        plan("deepspeed", "--master_port", "29500"),
        plan("torchrun"),
    ],
)
def test_other_options_are_passed_on(asked: Plan) -> None:
    check_launcher(asked)


@pytest.mark.parametrize(("options", "kind"), [(torchrun.OPTIONS, "torchrun"), (deepspeed.OPTIONS, "deepspeed")])
def test_every_name_in_the_tables_is_an_option_of_its_launcher(options: Any, kind: str) -> None:
    for name in {**GIVEN_BY_SEATRIAL[kind], **GIVEN_ON_MANY_HOSTS[kind]}:
        assert options.option_of(f"--{name}")[0] == name


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (plan("python", place={"port": 29500, "port_base": 29500}), "place.port_base: has no meaning beside place.port"),
        (plan("torchrun", "--master_port=1", place={"port": 29500}), "place.port: has no meaning beside the port in launcher.args"),
        (plan("python", place={"include": "localhost"}), "place.include: 'localhost' names no GPUs"),
        (plan("python", place={"include": "localhost:0,1", "ranks": 3}), "place.ranks: 3 ranks, but include names 2 GPUs (localhost:0,1);"),
        (
            plan("python", place={"kind": "pernode", "nodes": 2, "include": "localhost:0", "ranks": 4}),
            "place.ranks: 4 ranks, but include names 1 GPUs (localhost:0) on each of 2 nodes",
        ),
        (plan("deepspeed", place={"include": "localhost:GPU-a"}), "place.include: launcher deepspeed takes GPUs by number"),
        (
            plan("deepspeed", place={"include": "localhost:10,2"}),
            "place.include: launcher deepspeed takes GPUs in rising order; write localhost:2,10",
        ),
    ],
)
def test_a_place_that_cannot_be_had(asked: Plan, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_place(asked)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "asked",
    [
        plan("python"),
        plan("python", place={"include": "localhost:1,0", "ranks": 2, "port": 29500}),
        plan("deepspeed", place={"include": "localhost:2,10"}),
        plan("torchrun", place={**HOSTS, "include": "n1@n2"}),
        plan("torchrun", place={"kind": "pernode", "nodes": 2, "include": "localhost:0,1", "ranks": 4}),
    ],
)
def test_a_place_that_can(asked: Plan) -> None:
    check_place(asked)
