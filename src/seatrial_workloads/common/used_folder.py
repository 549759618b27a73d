"""Whether a folder holds a run already. In: a folder. Out: whether steps were written there: two runs in one cannot be told apart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common.startup_error import StartupError

FIRST_EVENTS = "events_rank0.jsonl"
STEP = b'"kind":"step"'


def holds_a_run(run_dir: Path, env: Mapping[str, str] = os.environ) -> bool:
    """Whether steps of an earlier run are there. The harness gives every attempt a folder of its own; torchrun may start ranks again."""
    if env.get(ENV_RUN_DIR) or env.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        return False
    try:
        return STEP in (run_dir / FIRST_EVENTS).read_bytes()
    except OSError:
        return False


def refuse_used_folder(run_dir: Path) -> None:
    """For a trainer started by hand; asked by rank 0, before anybody has taken a step."""
    if holds_a_run(run_dir):
        raise StartupError(
            f"--run-dir is {run_dir}, which holds an earlier run: give a folder of its own (--resume_from takes the old one)"
        )
