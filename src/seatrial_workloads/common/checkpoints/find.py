"""The way back to a checkpoint. In: a path that somebody gave. Out: the whole checkpoint it means, or a CheckpointError that says more.

A checkpoint with which the training that goes on would be another one is refused here, before any of it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seatrial_workloads.common.checkpoints.folder import FACTS, FOLDER, LATEST, OLD, Checkpoint, Facts
from seatrial_workloads.common.checkpoints.saved_tensors import CheckpointError


def find_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint that `path` means: one itself, or the newest of a run folder or of its `checkpoints`."""
    if not path.is_dir():
        raise CheckpointError(f"resume_from is {path}, and there is no such folder: give a checkpoint folder, or a run folder that has one")
    if (path / FACTS).exists():
        return _read(path)
    for folder in (path / FOLDER, path):
        if (folder / LATEST).is_file():
            return _read(_newest(folder))
    raise CheckpointError(
        f"resume_from is {path}, and there is no whole checkpoint: expected {FACTS} in it, or {LATEST} in it or in its {FOLDER} folder"
    )


def _newest(folder: Path) -> Path:
    tag = (folder / LATEST).read_text(encoding="utf-8").strip()
    # Written again under its own name and killed between two renames: the earlier one is still there.
    for candidate in (folder / tag, folder / f".{tag}{OLD}"):
        if tag and (candidate / FACTS).exists():
            return candidate
    others = sorted(found.parent.name for found in folder.glob(f"*/{FACTS}"))
    instead = f"give one of these instead: {', '.join(others)}" if others else "no other one is there"
    raise CheckpointError(f"{folder / LATEST} names '{tag}', which is no whole checkpoint: {instead}")


def _read(folder: Path) -> Checkpoint:
    try:
        written = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return Checkpoint(folder, Facts(**written))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder / FACTS} cannot be read ({error}): the checkpoint is of no use, take another one") from error


def refuse_misfit(checkpoint: Checkpoint, *, engine: str, zero_stage: int, world_size: int) -> None:
    """Another engine or another number of ranks cuts optimiser and data differently: said here, not by a failed load."""
    facts = checkpoint.facts
    wanted = {"engine": engine, "zero_stage": zero_stage, "world_size": world_size}
    for name, value in wanted.items():
        saved = getattr(facts, name)
        if saved != value:
            raise CheckpointError(
                f"{checkpoint.folder} was saved with {name} {saved}, and this run has {value}: "
                f"resume with {name} {saved}, or start from its weights alone (pretrained_checkpoint)"
            )


def refuse_other_settings(checkpoint: Checkpoint, settings: Mapping[str, Any], names: Iterable[str]) -> None:
    """Settings with which the training that goes on would be another one."""
    for name in names:
        saved = checkpoint.facts.settings.get(name, settings[name])
        if saved != settings[name]:
            raise CheckpointError(
                f"{checkpoint.folder} was saved with {name} {saved}, and this run has {settings[name]}: what comes after would be another "
                f"training; resume with {name} {saved}, or start from its weights alone (pretrained_checkpoint)"
            )
