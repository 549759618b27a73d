"""The phases of the validation, in order, and how each is run. In: a phase, the base plan, the output folder. Out: its campaign or log in
that folder, and a record of how it ended.

A phase that is a plan is plans/sparse-lm/NAME.yaml built on the chosen base (GPUs, or the small model on the CPU), run by `seatrial run`:
finished runs are not run again. The others are a snapshot and pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seatrial.cli.plan import PLANS
from seatrial.cli.runbook import RUNBOOKS
from seatrial.core.errors import UsageError
from seatrial.core.files import read_json, write_json, write_text
from seatrial.core.paths import CampaignPaths
from seatrial.records.outcome import Outcome
from seatrial_runbooks.sparse_lm.snapshot import take_snapshot

RUNBOOK, PLAN_FOLDER = RUNBOOKS / "sparse-lm", PLANS / "sparse-lm"
ARTIFACTS, RECORDS = "artifacts", "phases"
TESTS = RUNBOOK / "nsa" / "tests"
PROFILE_STEPS_AFTER_STALL = 50
NOT_RUN = None


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase."""

    name: str
    plan: str = ""
    """A plan of plans/sparse-lm."""
    tests: tuple[str, ...] = ()
    """Arguments for pytest, test files of the procedure first."""
    needs_gpus: int = 0


PHASES = (
    Phase(name="snapshot"),
    Phase(name="parity", tests=("test_equiv_small.py", "test_group_consistency.py")),
    Phase(name="baseline", plan="baseline"),
    Phase(name="buckets", plan="validation"),
    Phase(name="audit", plan="sdpa-audit"),
    Phase(name="v2", tests=("test_selection_v2_equiv.py", "test_performance_guards.py")),
    Phase(name="nvtx", plan="nvtx"),
    Phase(name="scaling", plan="scaling", needs_gpus=2),
    Phase(name="fused", plan="fused"),
    Phase(name="long-run", plan="long-run"),
)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the validation runs and what it may be cut to."""

    out: Path
    cpu: bool
    num_gpus: int
    steps: int | None = None
    """Most steps of a run; None for the plans' own."""
    repeats: int | None = None

    def campaign(self, phase: str) -> CampaignPaths:
        return CampaignPaths(self.out / phase)

    def log(self, phase: str) -> Path:
        return self.out / f"{phase}.log"

    def record(self, phase: str) -> Mapping[str, Any]:
        """How a phase ended: `exit_code` (None where it was not run) and `why`."""
        return read_json(self.out / RECORDS / f"{phase}.json") or {"exit_code": NOT_RUN, "why": "not run"}


def check_kind(target: Target) -> None:
    """Create the folder and note what it is of; raises UsageError where it is of the other kind: figures of a small model on the CPU must
    not be judged as those of GPUs."""
    path = target.out / RECORDS / "target.json"
    noted = read_json(path)
    if noted is not None and noted["cpu"] != target.cpu:
        do = "add --cpu" if noted["cpu"] else "leave --cpu out"
        raise UsageError(f"{target.out} has a validation on {'the CPU' if noted['cpu'] else 'GPUs'}: {do}, or give another --out")
    write_json(path, {"cpu": target.cpu})


def run_phase(phase: Phase, target: Target) -> int | None:
    """Run it and record how it ended; None where this machine cannot."""
    why = ""
    code: int | None
    if phase.needs_gpus > target.num_gpus:
        have = "the CPU" if target.cpu else f"{target.num_gpus} GPU" + "s" * (target.num_gpus != 1)
        code, why = NOT_RUN, f"needs {phase.needs_gpus} GPUs, and this is {have}"
    elif phase.plan:
        code = _run_plan(phase, target)
    elif phase.tests:
        code = _run_tests(phase, target)
    else:
        take_snapshot(target.out / ARTIFACTS)
        code = 0
    write_json(target.out / RECORDS / f"{phase.name}.json", {"exit_code": code, "why": why})
    return code


def _run_plan(phase: Phase, target: Target) -> int:
    path = target.out / RECORDS / f"{phase.name}.yaml"
    write_text(path, yaml.safe_dump(plan_mapping(phase, target), sort_keys=False))
    code = _run_campaign(path)
    if phase.name == "nvtx" and code and _has_stalled(target.campaign(phase.name)):
        # Auxiliary statistics are off already in this plan.
        mapping = plan_mapping(phase, target)
        mapping["steps"] = min(mapping["steps"], PROFILE_STEPS_AFTER_STALL)
        write_text(path, yaml.safe_dump(mapping, sort_keys=False))
        code = _run_campaign(path)
    return code


def plan_mapping(phase: Phase, target: Target) -> dict[str, Any]:
    """The phase's plan on the chosen base, with this validation's folder, steps and repeats."""
    mapping: dict[str, Any] = yaml.safe_load((PLAN_FOLDER / f"{phase.plan}.yaml").read_text(encoding="utf-8"))
    base = PLAN_FOLDER / ("base-cpu.yaml" if target.cpu else "base.yaml")
    changes: dict[str, Any] = {"extends": str(base.resolve()), "output": str(target.campaign(phase.name).folder.resolve())}
    inherited: dict[str, Any] = yaml.safe_load(base.read_text(encoding="utf-8"))
    if target.cpu and "steps" in mapping:
        changes["steps"] = inherited["steps"]
    if target.steps is not None:
        changes["steps"] = min(target.steps, mapping.get("steps", inherited["steps"]))
    if target.repeats is not None:
        changes["repeats"] = min(target.repeats, mapping.get("repeats", 1))
    if not target.cpu and target.num_gpus == 1:
        changes["place"] = {"include": "localhost:0"}
    return {**mapping, **changes}


def _run_campaign(plan: Path) -> int:
    return subprocess.run([sys.executable, "-m", "seatrial", "run", str(plan)], check=False).returncode


def _has_stalled(campaign: CampaignPaths) -> bool:
    outcomes = (read_json(run.attempts()[-1].outcome) for run in campaign.runs())
    return any(outcome is not None and outcome["outcome"] == Outcome.STALLED.value for outcome in outcomes)


def _run_tests(phase: Phase, target: Target) -> int:
    """pytest, its output kept in the phase's log and printed."""
    argv: Sequence[str] = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        *(str(TESTS / name) for name in phase.tests),
    ]
    env = {**os.environ, "NSA_TEST_SEL_PACK": "1"}
    done = subprocess.run(argv, cwd=RUNBOOK, env=env, capture_output=True, text=True, errors="replace", check=False)
    target.out.mkdir(parents=True, exist_ok=True)
    write_text(target.log(phase.name), done.stdout + done.stderr)
    print(done.stdout, end="", flush=True)
    return done.returncode
