"""Specs, allocations and attempts for tests of launch/ and agent/, and running real agents to their end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import AttemptPaths
from seatrial.launch.agents import AgentProcess, Agents
from seatrial.launch.launchers import allocation_for_node
from seatrial.launch.places.allocation import allocate_local, nodes_of
from seatrial.launch.prepare import prepare_local
from seatrial.launch.transports import StartRequest
from seatrial.records.launch import AgentReport, Allocation
from seatrial.records.plan import LauncherSpec, LimitsSpec, PlaceSpec, RunSpec, WorkloadSpec
from tests.waiting import wait_until

TIMEOUT_S = 60.0


def make_spec(
    cwd: Path | str,
    *,
    kind: str = "python",
    script: str | None = "train.py",
    args: tuple[str, ...] = (),
    module: str | None = None,
    program: tuple[str, ...] = (),
    launcher_args: tuple[str, ...] = (),
    ranks: int = 1,
    devices: tuple[str, ...] = (),
    term_s: float = 10.0,
    **more: Any,
) -> RunSpec:
    return RunSpec(
        run="mb8_r1",
        group="mb8",
        repeat=1,
        plan="a-plan",
        workload=WorkloadSpec(name="train", module=module, script=None if module else script, args=args),
        launcher=LauncherSpec(kind=kind, args=launcher_args, program=program),
        place=PlaceSpec(ranks=ranks, devices=devices),
        limits=LimitsSpec(term_s=term_s),
        cwd=str(cwd),
        **more,
    )


def on_hosts(spec: RunSpec, hosts: Sequence[HostSpec], **more: Any) -> RunSpec:
    """`spec` on these hosts of a hostfile."""
    place = PlaceSpec(kind="hostfile", hostfile="/hosts", ranks=sum(host.ranks for host in hosts), hosts=tuple(hosts), **more)
    return replace(spec, place=place)


def hosts_allocation(spec: RunSpec, node_rank: int | None = None, port: int = 29650) -> Allocation:
    """What `spec` gets on its hosts; with `node_rank`, that node's view."""
    nodes = nodes_of(spec.place)
    ranks = sum(node.ranks for node in nodes)
    whole = Allocation(ranks=ranks, master_addr=nodes[0].name, master_port=port, nodes=nodes)
    return whole if node_rank is None else allocation_for_node(whole, nodes[node_rank])


def attempt_in(folder: Path) -> AttemptPaths:
    return AttemptPaths(folder / "out" / "mb8_r1" / "attempt-1")


def allocation_for(spec: RunSpec, port: int = 29650) -> Allocation:
    return Allocation(ranks=spec.place.ranks, devices=spec.place.devices, master_port=port)


class FakeStarter:
    """The server of a campaign without ssh, in a test: keeps what is to be started, and starts it by `start_by` where given."""

    def __init__(self, start_by: Callable[[StartRequest], None] = lambda request: None, python: str = "") -> None:
        self.master_addr = "127.0.0.1"
        self.started: list[StartRequest] = []
        self.problems: dict[str, str] = {}
        self._start_by, self._python = start_by, python

    def start(self, node: str, argv: Sequence[str], log: Path) -> None:
        self.started.append(StartRequest(host=node, argv=tuple(argv), log=log))
        self._start_by(self.started[-1])

    def problem(self, node: str) -> str:
        return self.problems.get(node, "")

    def python_of(self, node: str) -> str:
        return self._python


@contextmanager
def started(spec: RunSpec, attempt: AttemptPaths, base_env: Mapping[str, str] = os.environ) -> Iterator[AgentProcess]:
    """A real agent on a prepared attempt."""
    with allocate_local(spec) as allocation:
        prepare_local(spec, attempt, allocation, base_env)
        with AgentProcess.start(attempt) as agent:
            yield agent


def until_over(agents: Agents) -> list[AgentReport]:
    """All reports until no more can come."""
    return reports_until(agents, lambda reports: not agents.alive)


def reports_until(agents: Agents, are_enough: Callable[[list[AgentReport]], bool]) -> list[AgentReport]:
    """The reports that have come once they are enough."""
    reports: list[AgentReport] = []

    def have_come() -> bool:
        if not are_enough(reports):
            reports.extend(agents.wait(1.0))
        return are_enough(reports)

    wait_until(have_come, "all reports come", TIMEOUT_S)
    return reports


def reports_until_over(agent: AgentProcess) -> dict[str, AgentReport]:
    """The last report of each kind."""
    return {report.kind: report for report in until_over(agent)}


def run_to_end(spec: RunSpec, attempt: AttemptPaths) -> dict[str, AgentReport]:
    with started(spec, attempt) as agent:
        return reports_until_over(agent)
