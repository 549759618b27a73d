"""What a run's checkpoints look like on disk: every name, and the facts that stand in each.

    RUN_DIR/checkpoints/latest                   the tag of the newest whole checkpoint
    RUN_DIR/checkpoints/ckpt_iter_120/           what the engine wrote, and:
    RUN_DIR/checkpoints/ckpt_iter_120/checkpoint.json     who wrote it, after which step, with which settings

A folder that begins with a dot is one in the making (`.TAG.part`) or one that is being replaced (`.TAG.old`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER, LATEST, FACTS = "checkpoints", "latest", "checkpoint.json"
TAG_STYLES = {"iter": "ckpt_iter_{}", "global_step": "global_step{}"}
PART, OLD = ".part", ".old"
_TAG = re.compile(r"(?:ckpt_iter_|global_step)(\d+)")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Who wrote a checkpoint, and when in the training."""

    engine: str
    zero_stage: int
    world_size: int
    step: int
    """The last step that is in it; training goes on with the next."""
    seed: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """One that is whole."""

    folder: Path
    facts: Facts


def tag_of(step: int, style: str) -> str:
    """Name of the folder for a step: style iter or global_step."""
    return TAG_STYLES[style].format(step)


def steps_in(folder: Path) -> list[tuple[int, Path]]:
    """Step and folder of every checkpoint there, whole or not, by step."""
    return sorted((int(match[1]), path) for path in folder.iterdir() if (match := _TAG.fullmatch(path.name)))


def rank_file(folder: Path, rank: int) -> Path:
    """What every rank leaves of itself in a checkpoint."""
    return folder / f"random_states_rank{rank}.pt"
