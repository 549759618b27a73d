"""Checkpoints of a run. In: an engine and the facts of the training. Out: folders that are whole or not there, and the way back from them.

    RUN_DIR/checkpoints/latest                   the tag of the newest whole checkpoint
    RUN_DIR/checkpoints/ckpt_iter_120/           what the engine wrote, and:
    RUN_DIR/checkpoints/ckpt_iter_120/checkpoint.json     who wrote it, after which step, with which settings

A checkpoint is written aside (`.TAG.part`), waited for, renamed, then named by `latest`; only then are older ones removed. Whoever is
killed at any moment leaves a `latest` that can be loaded. All ranks write into the one folder: nodes must share the run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.saved_tensors import CheckpointError, flush_to_disk, load_tensors

FOLDER, LATEST, FACTS = "checkpoints", "latest", "checkpoint.json"
TAG_STYLES = {"iter": "ckpt_iter_{}", "global_step": "global_step{}"}
PART, OLD = ".part", ".old"
_TAG = re.compile(r"(?:ckpt_iter_|global_step)(\d+)")
# Names under which trainers keep a whole model inside a file.
_INSIDE = ("model", "module", "state_dict")


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


def save_checkpoint(run_dir: Path, tag: str, facts: Facts, write: Callable[[Path], None], ranks: Ranks, *, keep: int) -> Path:
    """Every rank calls it; `write` is given the folder to write into. When it returns, the checkpoint is whole and the newest.

    A disk that is full on one rank is an error on all of them, and older checkpoints stay.
    """
    whole = run_dir / FOLDER / tag
    part = whole.with_name(f".{tag}{PART}")
    leads = ranks.rank == 0
    try:
        _together(ranks, whole, lambda: _begin(part) if leads else None)
        _together(ranks, whole, lambda: write(part))
        _together(ranks, whole, lambda: _publish(part, whole, facts) if leads else None)
    except CheckpointError:
        if leads:
            shutil.rmtree(part, ignore_errors=True)
        raise
    if leads:
        _remove_older(whole.parent, facts.step, keep)
    return whole


def _together(ranks: Ranks, folder: Path, act: Callable[[], object]) -> None:
    """What fails on one rank fails on all: none is left waiting for the others."""
    failure: Exception | None = None
    try:
        act()
    except (OSError, RuntimeError) as error:
        failure = error
    if ranks.largest([float(failure is not None)])[0]:
        raise CheckpointError(_why_not_written(folder, failure)) from failure


def _why_not_written(folder: Path, failure: Exception | None) -> str:
    why = "another rank could not write" if failure is None else (str(failure).splitlines() or [type(failure).__name__])[0]
    free = "?"
    with contextlib.suppress(OSError):
        free = f"{shutil.disk_usage(folder.parent).free / 2**20:.0f}"
    return (
        f"the checkpoint {folder} could not be written ({why}; {free} MiB free there): "
        "the older ones are as they were; make room, or put the run folder on another disk, and resume from the newest"
    )


def _begin(part: Path) -> None:
    """An empty folder; what a killed run left half-written goes."""
    part.parent.mkdir(parents=True, exist_ok=True)
    _remove_all(part.parent, PART)
    part.mkdir()


def _remove_all(folder: Path, ending: str) -> None:
    for left in folder.glob(f".*{ending}"):
        shutil.rmtree(left, ignore_errors=True)


def _publish(part: Path, whole: Path, facts: Facts) -> None:
    """From here on it is the newest checkpoint."""
    missing = [rank for rank in range(facts.world_size) if not rank_file(part, rank).exists()]
    if missing:
        raise OSError(f"nothing of rank {missing[0]} is in it: the run folder must be one that all nodes share")
    _write_surely(part / FACTS, json.dumps(dataclasses.asdict(facts), indent=2) + "\n")
    flush_to_disk(part)
    if whole.exists():
        old = whole.with_name(f".{whole.name}{OLD}")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(whole, old)
    os.replace(part, whole)
    _write_surely(whole.parent / LATEST, whole.name)
    flush_to_disk(whole.parent)
    _remove_all(whole.parent, OLD)


def rank_file(folder: Path, rank: int) -> Path:
    """What every rank leaves of itself in a checkpoint."""
    return folder / f"random_states_rank{rank}.pt"


def _write_surely(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}{PART}")
    aside.write_text(text, encoding="utf-8")
    flush_to_disk(aside)
    os.replace(aside, path)


def _remove_older(folder: Path, step: int, keep: int) -> None:
    """Down to `keep`, the one of this step included. One of a later step belongs to another history and stays."""
    found = sorted((int(match[1]), path) for path in folder.iterdir() if (match := _TAG.fullmatch(path.name)))
    older = [path for its_step, path in found if its_step < step]
    for path in older[: max(0, len(older) - (keep - 1))]:
        # Half of it gone must not look whole.
        with contextlib.suppress(OSError):
            (path / FACTS).unlink()
        shutil.rmtree(path, ignore_errors=True)


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


@dataclass(frozen=True)
class LoadedWeights:
    """What a file had too little and too much, by name."""

    missing: list[str]
    unexpected: list[str]


def load_weights(model: nn.Module, path: Path) -> LoadedWeights:
    """Start the whole model from a .pth: a plain state dict, or one under model, module or state_dict; `module.` before names is cut."""
    if not path.is_file():
        raise CheckpointError(
            f"pretrained_checkpoint (train.pretrained_model_checkpoint) is {path}, and there is no such file: give a .pth, or leave it out"
        )
    found = _state_dict(load_tensors(path), path)
    own = model.state_dict()
    matched = [name for name in own if name in found]
    if not matched:
        raise CheckpointError(
            f"{path} has no weight of this model: its first is '{next(iter(found))}', the model's is '{next(iter(own), 'nothing')}'"
        )
    if any(not found[name].numel() and own[name].numel() for name in matched):
        raise CheckpointError(
            f"{path} holds no weights, only their places: ZeRO 3 keeps them apart; make one file of the checkpoint "
            "(python zero_to_fp32.py . OUT in its `checkpoints` folder) and give OUT/pytorch_model.bin"
        )
    for name in matched:
        if found[name].shape != own[name].shape:
            raise CheckpointError(
                f"{path} has {name} of shape {list(found[name].shape)}, and the model wants {list(own[name].shape)}: "
                "give a file of the same model, or the model that the file is of"
            )
    model.load_state_dict({name: found[name] for name in matched}, strict=False)
    return LoadedWeights(missing=sorted(own.keys() - found.keys()), unexpected=sorted(found.keys() - own.keys()))


def _state_dict(content: Any, path: Path) -> dict[str, Any]:
    """Name → tensor."""
    for name in _INSIDE:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    tensors = {name: value for name, value in content.items() if hasattr(value, "shape")} if isinstance(content, dict) else {}
    if not tensors:
        raise CheckpointError(f"{path} holds no weights by name: expected a state dict, or one under {', '.join(_INSIDE)}")
    return {str(name).removeprefix("module."): value for name, value in tensors.items()}
