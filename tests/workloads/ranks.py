"""Workloads started as real processes, and what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_S = 280


@dataclass(frozen=True)
class Finished:
    """How the processes ended."""

    returncodes: list[int]
    stdout: str
    stderr: list[str]


def run_ranks(workload: str, run_dir: Path, *, world_size: int = 1, **settings: Any) -> Finished:
    """Plain python ranks, as the `python` launcher starts them."""
    file = run_dir.parent / "settings.json"
    file.write_text(json.dumps(settings))
    return run_module([f"seatrial_workloads.{workload}.train", "--settings", str(file), "--run-dir", str(run_dir)], world_size)


def run_module(words: list[str], world_size: int = 1, **variables: str) -> Finished:
    """`python -m` with these words, once for each rank."""
    argv = [sys.executable, "-m", *words]
    environments = [rank_environment(rank, world_size) | variables for rank in range(world_size)]
    started = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for env in environments]
    try:
        said = [process.communicate(timeout=LONGEST_S) for process in started]
    finally:
        for process in started:
            process.kill()
    return Finished([process.returncode for process in started], said[0][0], [stderr for _, stderr in said])


def rank_environment(rank: int, world_size: int) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SEATRIAL_", "TORCHELASTIC_"))}
    return {**inherited, "RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}


def events(run_dir: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    lines = (run_dir / f"events_rank{rank}.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def column(run_dir: Path, name: str, rank: int = 0) -> list[Any]:
    return [step[name] for step in events(run_dir, "step", rank)]
