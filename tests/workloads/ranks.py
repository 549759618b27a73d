"""Workloads started as real processes, and the events they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness import LIGHT_DEEPSPEED

LONGEST_S = 280


@dataclass(frozen=True)
class Finished:
    """Exit codes and output of the processes; stdout of rank 0 only."""

    returncodes: list[int]
    stdout: str
    stderr: list[str]


def run_ranks(workload: str, run_dir: Path, *, world_size: int = 1, **settings: Any) -> Finished:
    """Plain python ranks, as the `python` launcher starts them."""
    file = run_dir.parent / "settings.json"
    file.write_text(json.dumps(settings))
    return run_module([f"seatrial_workloads.{workload}.train", "--settings", str(file), "--run-dir", str(run_dir)], world_size)


def run_module(arguments: list[str], world_size: int = 1, **variables: str) -> Finished:
    """`python -m` with these arguments, once for each rank."""
    argv = [sys.executable, "-m", *arguments]
    environments = [rank_environment(rank, world_size) | variables for rank in range(world_size)]
    started = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for env in environments]
    try:
        outputs = [process.communicate(timeout=LONGEST_S) for process in started]
    finally:
        for process in started:
            process.kill()
    return Finished([process.returncode for process in started], outputs[0][0], [stderr for _, stderr in outputs])


def rank_environment(rank: int, world_size: int) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SEATRIAL_", "TORCHELASTIC_"))}
    own = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
    return {**inherited, **own, "PYTHONPATH": f"{LIGHT_DEEPSPEED}:{os.environ.get('PYTHONPATH', '')}"}


def events(run_dir: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    lines = (run_dir / f"events_rank{rank}.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def column(run_dir: Path, name: str, rank: int = 0) -> list[Any]:
    return [step[name] for step in events(run_dir, "step", rank)]
