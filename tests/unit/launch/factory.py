"""Specs and attempts for tests of launch/ and agent/, and waiting for real processes without guessing times."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.launch.agent_process import AgentProcess
from seatrial.launch.agents import Agents
from seatrial.launch.nodes import as_seen_by, nodes_of
from seatrial.launch.places.local import allocate
from seatrial.launch.prepare import prepare
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentReport, Allocation
from seatrial.records.run_spec import HostSpec, LauncherSpec, LimitsSpec, PlaceSpec, RunSpec, WorkloadSpec

PATIENCE_S = 60.0


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
    """What `spec` gets on its hosts; as one node sees it where `node_rank` says which."""
    nodes = nodes_of(spec.place)
    ranks = sum(node.ranks for node in nodes)
    whole = Allocation(ranks=ranks, master_addr=nodes[0].name, master_port=port, nodes=nodes)
    return whole if node_rank is None else as_seen_by(whole, nodes[node_rank])


def attempt_in(folder: Path) -> AttemptPaths:
    return AttemptPaths(folder / "out" / "mb8_r1" / "attempt-1")


def allocation_for(spec: RunSpec, port: int = 29650) -> Allocation:
    return Allocation(ranks=spec.place.ranks, devices=spec.place.devices, master_port=port)


@contextmanager
def started(spec: RunSpec, attempt: AttemptPaths, caller: Mapping[str, str] = os.environ) -> Iterator[AgentProcess]:
    """A real agent on a prepared attempt."""
    with allocate(spec) as allocation:
        prepare(spec, attempt, allocation, caller)
        with AgentProcess.start(attempt) as agent:
            yield agent


def until_over(agents: Agents) -> list[AgentReport]:
    """Everything that they say until no more can come."""
    until_m, said = time.monotonic() + PATIENCE_S, []
    while agents.alive:
        said += agents.wait(1.0)
        assert time.monotonic() < until_m, f"only {said}"
    return said


def reports_until_over(agent: AgentProcess) -> dict[str, AgentReport]:
    """The last report of each kind."""
    return {report.kind: report for report in until_over(agent)}


def run_to_end(spec: RunSpec, attempt: AttemptPaths) -> dict[str, AgentReport]:
    with started(spec, attempt) as agent:
        return reports_until_over(agent)
