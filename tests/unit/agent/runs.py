"""Agents on ready orders, for tests that talk to them without a plan: start, control, reports."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seatrial.files import write_json
from seatrial.launch.agent_process import AgentProcess
from seatrial.machine.shared_memory import present
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AgentOrder, AgentReport, Command
from seatrial.records.events import ENV_RUN_DIR
from seatrial.records.run_spec import TelemetrySpec

PATIENCE_S = 60.0
NO_TELEMETRY = TelemetrySpec(gpu_s=None, host_s=None)


def order_for(folder: Path, text: str, *, ranks: int = 1, env: Mapping[str, str] | None = None, **more: object) -> AgentOrder:
    """Python running `text` once a rank, in an attempt's folder below `folder`."""
    attempt = folder / "run" / "attempt-1"
    attempt.mkdir(parents=True, exist_ok=True)
    command = Command(
        argv=(sys.executable, "-c", text),
        env={ENV_RUN_DIR: str(attempt), **(env or {})},
        cwd=str(folder),
        ranks=tuple({"RANK": str(rank)} for rank in range(ranks)),
    )
    order = AgentOrder(command=command, attempt_folder=str(attempt), term_s=2.0, telemetry=NO_TELEMETRY, shared_memory=present())
    return replace(order, **more)  # type: ignore[arg-type]


@contextmanager
def agent_on(order: AgentOrder) -> Iterator[AgentProcess]:
    """A real agent carrying out `order`."""
    attempt = AttemptPaths(Path(order.attempt_folder))
    write_json(attempt.agent_order, to_json(order))
    with AgentProcess.start(attempt) as agent:
        yield agent


def attempt_of(order: AgentOrder) -> AttemptPaths:
    return AttemptPaths(Path(order.attempt_folder))


def hear(agent: AgentProcess, kind: str, patience_s: float = PATIENCE_S) -> AgentReport:
    """The next report of a kind."""
    until = time.monotonic() + patience_s
    heard: list[AgentReport] = []
    while time.monotonic() < until and agent.alive:
        for report in agent.wait(until - time.monotonic()):
            heard.append(report)
            if report.kind == kind:
                return report
    raise AssertionError(f"no report '{kind}' came, only {heard}")
