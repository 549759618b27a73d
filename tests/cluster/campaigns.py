"""Campaigns on the hosts of a cluster: a plan in the shared folder, `seatrial` on the head, and its files.

campaign = Campaign(hosts, tmp_path)
text = campaign.run(DUMMY, code=0)
campaign.outcome("mb8_r1").cause
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.codec import from_json
from seatrial.records.launch import NodesRecord
from seatrial.records.outcome import RunOutcome
from tests.cluster.hosts import Hosts
from tests.cluster.running import Started

TIMEOUT_S = 90.0
# No process of a run may be left on any host after this, however it ended.
NOTHING_LEFT_AFTER_S = 30.0
# Of ranks and their children, and of agents and their parents.
MARKS = ("SEATRIAL_RUN_DIR=", "seatrial.agent")

# Standard library only: hosts and launchers are under test.
DUMMY: dict[str, Any] = {
    "name": "many",
    "workload": "dummy",
    "settings": {"step_ms": 20},
    "launcher": "python",
    "place": {"kind": "hostfile", "hostfile": "hostfile"},
    "steps": 40,
    "telemetry": {"host_s": 0.5, "gpu_s": None},
    "limits": {"start_s": 60, "run_s": 120},
    "output": "out",
}
# Long enough for every fault to happen during the run.
LONG: dict[str, Any] = {**DUMMY, "steps": 100_000, "limits": {"start_s": 60, "run_s": 600}}


class Campaign:
    """One plan and its output folder, both shared by all hosts."""

    def __init__(self, hosts: Hosts, folder: Path, slots: int = 1) -> None:
        self.hosts, self.folder = hosts, folder
        self.out = CampaignPaths(folder / "out")
        hosts.hostfile(folder / "hostfile", slots)

    def write(self, plan: dict[str, Any]) -> Path:
        path = self.folder / "plan.yaml"
        path.write_text(yaml.safe_dump(plan))
        return path

    def run(self, plan: dict[str, Any], *options: str, code: int | None = 0, timeout: float = 240.0, verb: str = "run") -> str:
        """To its end, on the head; its output."""
        done = self.hosts.run("head", ["seatrial", verb, self.write(plan), *options], cwd=self.folder, timeout=timeout)
        text = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"exit code {done.returncode}, expected {code}:\n{text}"
        return text

    def start(self, plan: dict[str, Any], *options: str, host: str = "head") -> Started:
        return self.hosts.start(host, ["seatrial", "run", self.write(plan), *options], cwd=self.folder)

    def attempt(self, run: str = "", number: int = 1) -> AttemptPaths:
        """Of the run with this name, or of the only one."""
        folder = self.out.run(run) if run else self.out.runs()[0]
        return folder.attempt(number)

    def outcome(self, run: str = "", number: int = 1) -> RunOutcome:
        return from_json(RunOutcome, json.loads(self.attempt(run, number).outcome.read_text()))

    def log(self) -> str:
        """The output of the only run so far."""
        log = self.attempt().launcher_log if self.out.runs() else None
        return log.read_text() if log and log.exists() else ""

    def nodes(self, run: str = "") -> NodesRecord:
        return from_json(NodesRecord, json.loads(self.attempt(run).nodes_record.read_text()))

    def summary(self) -> dict[str, Any]:
        return json.loads(self.out.summary_json.read_text())  # type: ignore[no-any-return]

    def wait_for_steps(self, started: Started, ranks: int, steps: int = 3) -> None:
        """Until every rank has reported so many steps."""
        self.wait(lambda: self._stepped(ranks, steps), lambda: started.output)

    def wait(self, condition: Callable[[], bool], output: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        until_m = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until_m, f"not within {timeout_s:.0f} s:\n{output()}"
            time.sleep(0.1)

    def assert_nothing_left(self, *hosts: str) -> None:
        """On any host, or on those named, within NOTHING_LEFT_AFTER_S."""
        names = hosts or tuple(self.hosts.names)
        self.wait(
            lambda: not any(self.left_on(name) for name in names),
            lambda: "\n".join(f"{name}: {command}" for name in names for text in MARKS for command in self.hosts.commands(name, text)),
            NOTHING_LEFT_AFTER_S,
        )

    def left_on(self, host: str) -> list[int]:
        return [pid for text in MARKS for pid in self.hosts.processes(host, text)]

    def _stepped(self, ranks: int, steps: int) -> bool:
        if not self.out.runs():
            return False
        files = self.attempt().all_events()
        return len(files) == ranks and all(path.read_text().count('"kind":"step"') >= steps for path in files)
