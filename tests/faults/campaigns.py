"""Plans of this lane with limits short enough for a test to wait for, and readers of their outcomes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psutil

from seatrial.core.paths import AttemptPaths
from tests.harness import Harness
from tests.waiting import wait_until

SCRIPTS = Path(__file__).parent / "scripts"
STEPPED_WITHIN_S = 120.0
QUICK_STALL = "{factor: 3, floor_s: 4}"
QUICK_STALL_OF_A_SCRIPT = "{factor: 3, floor_s: 4, quiet_s: 4}"
# Of a rank that hangs: it stops neither softly nor at TERM, so that both are waited for in full.
HANGING = {"soft_s": 1, "term_s": 1}
INCONCLUSIVE = 3
"""The exit code where the infrastructure failed a run: no FAIL of its group, but a request to run it again."""


def dummy(
    settings: str = "", *, ranks: int = 2, steps: int = 40, limits: str = "", soft_s: int = 3, term_s: int = 3, more: str = ""
) -> str:
    """A plan of one dummy run; `settings` and `limits` without their braces."""
    return f"""
name: fault
workload: dummy
settings: {{step_ms: 10, log_every: 10{", " + settings if settings else ""}}}
launcher: python
place: {{kind: local, ranks: {ranks}}}
steps: {steps}
limits: {{soft_s: {soft_s}, term_s: {term_s}{", " + limits if limits else ""}}}
telemetry: {{gpu_s: null, host_s: 1}}
{more}
output: out
"""


def torch_job(args: str = "", *, steps: int = 400, limits: str = "", soft_s: int = 10, term_s: int = 5) -> str:
    """A plan of one real torchrun job of two ranks over gloo."""
    return f"""
name: fault
workload:
  script: {SCRIPTS / "gloo_job.py"}
  args: ["--steps", "{{steps}}"{args}]
launcher: torchrun
place: {{kind: local, ranks: 2}}
steps: {steps}
limits: {{soft_s: {soft_s}, term_s: {term_s}{", " + limits if limits else ""}}}
telemetry: {{gpu_s: null, host_s: null}}
output: out
"""


def only_attempt(harness: Harness, number: int = 1) -> AttemptPaths:
    (run,) = harness.out.runs()
    return run.attempt(number)


def outcome(harness: Harness, number: int = 1) -> dict[str, Any]:
    """The outcome of the only run's attempt."""
    read: dict[str, Any] = json.loads(only_attempt(harness, number).outcome.read_text())
    return read


def outcomes(harness: Harness) -> dict[str, tuple[str, str]]:
    """Outcome and cause of every attempt, by run and attempt."""
    return {f"{row['run']}/{row['attempt']}": (row["outcome"], row["cause"]) for row in harness.manifest()}


def run_and_end(harness: Harness, plan: str, code: int = 2) -> dict[str, Any]:
    """Run a plan of one run to its end; its outcome."""
    harness.run("run", str(harness.plan(plan)), code=code)
    return outcome(harness)


def started_ranks(harness: Harness, count: int, least_step: int = 1) -> dict[int, int]:
    """Pids by rank, once so many ranks have taken a step or more."""
    wait_until(lambda: len(_stepped(harness, least_step)) >= count, f"{count} ranks take their first steps", STEPPED_WITHIN_S)
    return _stepped(harness, least_step)


def _stepped(harness: Harness, least_step: int) -> dict[int, int]:
    found = {}
    for path in harness.out.folder.glob("*/attempt-*/events_rank*.jsonl"):
        events = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        steps = [event["step"] for event in events if event["kind"] == "step"]
        if steps and steps[-1] >= least_step and not (path.parent / "outcome.json").exists():
            found[int(events[0]["rank"])] = int(events[0]["pid"])
    return found


def agent_of(process_pid: int) -> psutil.Process:
    """The agent of a running harness."""
    agents = [child for child in psutil.Process(process_pid).children() if "seatrial.agent" in child.cmdline()]
    assert len(agents) == 1
    return agents[0]


def send(pid: int, number: signal.Signals) -> None:
    psutil.Process(pid).send_signal(number)
