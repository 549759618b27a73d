"""Checkpoints of a run: writing by all ranks, finding and checking them on resume; pretrained weights. `seatrial.core.checkpoints` has
their layout on disk, which the harness reads too.

A checkpoint is written aside (`.TAG.part`), renamed when every rank has finished, then named in `latest`; only then are older ones removed.
Files are read with `weights_only=True`: a checkpoint from elsewhere must not run code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import random
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seatrial.core.checkpoints import FOLDER, INFO, LATEST, OLD, PART, damage_of, file_sizes, find_checkpoints
from seatrial.core.files import BY_UMASK, write_json, write_text
from seatrial.core.text import MIB
from seatrial.records.events import ENV_RESUME_FROM
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.errors import StartupError, first_line, summarize_error

_UNSAFE_GLOBAL = re.compile(r"GLOBAL (\S+) was not an allowed global")


class CheckpointError(StartupError):
    """A checkpoint cannot be written, found or used."""


def save_tensors(path: Path, content: Any) -> None:
    """Write and fsync."""
    torch.save(content, path)
    flush_to_disk(path)


def flush_to_disk(path: Path) -> None:
    """fsync a file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_tensors(path: Path, *, safe_classes: Sequence[type] = ()) -> Any:
    """Load to the CPU; `safe_classes` may be unpickled besides tensors and plain values."""
    try:
        with torch.serialization.safe_globals(list(safe_classes)) if safe_classes else contextlib.nullcontext():
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: the checkpoint is incomplete, use an older one") from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        unsafe = _UNSAFE_GLOBAL.search(str(error))
        reason = f"it contains {unsafe[1]}, which could run code when loaded" if unsafe else first_line(error)
        raise CheckpointError(f"{path} cannot be read ({reason}): expected a file of tensors as torch.save writes it") from error


def random_states() -> dict[str, Any]:
    """Current states of all random number generators."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        # As a list: a safe load accepts no arrays.
        states["numpy"] = (kind, keys.tolist(), *rest)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Restore what `random_states` returned."""
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal), gauss_next))
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


TAG_STYLES = {"iter": "ckpt_iter_{}", "global_step": "global_step{}"}
_TAG = re.compile(r"(?:ckpt_iter_|global_step)(\d+)")


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """The run that wrote a checkpoint, and at which step."""

    engine: str
    zero_stage: int
    world_size: int
    step: int
    """Last completed step; training resumes with the next."""
    seed: int
    settings: dict[str, Any]
    files: dict[str, int] = field(default_factory=dict)
    """Bytes of each of its files; empty where an earlier version wrote it."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    folder: Path
    info: CheckpointInfo
    skipped: tuple[str, ...] = ()
    """Newer checkpoints that are damaged: name and reason."""


def tag_name(step: int, style: str) -> str:
    """Folder name for a step; style iter or global_step."""
    return TAG_STYLES[style].format(step)


def random_states_path(folder: Path, rank: int) -> Path:
    return folder / f"random_states_rank{rank}.pt"


def save_random_states(folder: Path, rank: int) -> None:
    save_tensors(random_states_path(folder, rank), random_states())


def load_random_states(folder: Path, rank: int) -> None:
    restore_random_states(load_tensors(random_states_path(folder, rank)))


def resume_source(setting: str | None) -> Path | None:
    """Where to resume from: the earlier attempt of this run that the harness names, else the setting."""
    source = os.environ.get(ENV_RESUME_FROM) or setting
    return Path(source) if source else None


def find_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at `path`, or the newest whole one of a run folder or its `checkpoints`."""
    if not path.is_dir():
        raise CheckpointError(f"resume_from is {path}, which is not a folder: give a checkpoint folder, or a run folder that has one")
    if (path / INFO).exists():
        if damage := damage_of(path):
            raise CheckpointError(f"{path} is damaged ({damage}): use another checkpoint")
        return _read(path)
    skipped: tuple[str, ...] = ()
    for folder in (path / FOLDER, path):
        found = find_checkpoints(folder)
        if found.whole:
            return dataclasses.replace(_read(found.whole[0].folder), skipped=found.skipped)
        skipped += found.skipped
    why = f": {'; '.join(skipped)}" if skipped else f": expected {INFO} in it, or checkpoints in its {FOLDER} folder"
    raise CheckpointError(f"resume_from is {path}, which has no complete checkpoint{why}")


def _read(folder: Path) -> Checkpoint:
    try:
        return Checkpoint(folder, CheckpointInfo(**json.loads((folder / INFO).read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder / INFO} cannot be read ({error}): use another checkpoint") from error


def check_same(
    checkpoint: Checkpoint, current: Mapping[str, Any], instead: str = "start from its weights alone (pretrained_checkpoint)"
) -> None:
    """Refuse to resume where one of these differs: another engine or world size shards optimiser and data differently, and other
    settings may define another training."""
    saved = {**checkpoint.info.settings, **dataclasses.asdict(checkpoint.info)}
    for name, value in current.items():
        if saved.get(name, value) != value:
            raise CheckpointError(
                f"{checkpoint.folder} was saved with {name} {saved[name]}, and this run has {value}: "
                f"resume with {name} {saved[name]}, or {instead}"
            )


def save_checkpoint(run_dir: Path, tag: str, info: CheckpointInfo, write: Callable[[Path], None], ranks: Ranks, *, keep: int) -> Path:
    """Called by every rank; `write` fills the given folder. On return the checkpoint is complete and the newest.

    A full disk on one rank raises on all of them, and older checkpoints stay.
    """
    whole = run_dir / FOLDER / tag
    part = whole.with_name(f".{tag}{PART}")
    is_rank_0 = ranks.rank == 0
    try:
        _on_all_ranks(ranks, whole, lambda: _create_partial(part) if is_rank_0 else None)
        _on_all_ranks(ranks, whole, lambda: write(part))
        _on_all_ranks(ranks, whole, lambda: _publish(part, whole, info) if is_rank_0 else None)
    except CheckpointError:
        if is_rank_0:
            shutil.rmtree(part, ignore_errors=True)
        raise
    if is_rank_0:
        _remove_older(whole.parent, info.step, keep)
    return whole


def _on_all_ranks(ranks: Ranks, folder: Path, act: Callable[[], object]) -> None:
    """Raise on all ranks when `act` fails on one, so that none waits for it."""
    failure: Exception | None = None
    try:
        act()
    except Exception as error:
        failure = error
    if ranks.all_reduce_max([float(failure is not None)])[0]:
        raise CheckpointError(_why_not_written(folder, failure)) from failure


def _why_not_written(folder: Path, failure: Exception | None) -> str:
    why = "another rank failed to write" if failure is None else summarize_error(failure)
    free = "?"
    with contextlib.suppress(OSError):
        free = f"{shutil.disk_usage(folder.parent).free / MIB:.0f}"
    return (
        f"the checkpoint {folder} could not be written ({why}; {free} MiB free): "
        "older ones are intact; free some space or use another disk, and resume from the newest"
    )


def _create_partial(part: Path) -> None:
    """Create an empty folder; remove what a killed run left."""
    part.parent.mkdir(parents=True, exist_ok=True)
    _remove_all(part.parent, PART)
    part.mkdir()


def _remove_all(folder: Path, ending: str) -> None:
    for left in folder.glob(f".*{ending}"):
        with contextlib.suppress(OSError):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def _publish(part: Path, whole: Path, info: CheckpointInfo) -> None:
    """Rename into place and make it the newest checkpoint."""
    missing = [rank for rank in range(info.world_size) if not random_states_path(part, rank).exists()]
    if missing:
        raise OSError(f"files of rank {missing[0]} are missing: the run folder must be shared by all nodes")
    # With the size of every file: one that is truncated later is then noticed.
    write_json(part / INFO, dataclasses.asdict(dataclasses.replace(info, files=file_sizes(part))), BY_UMASK)
    flush_to_disk(part)
    if whole.exists():
        old = whole.with_name(f".{whole.name}{OLD}")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(whole, old)
    os.replace(part, whole)
    write_text(whole.parent / LATEST, whole.name, BY_UMASK)
    flush_to_disk(whole.parent)
    _remove_all(whole.parent, OLD)


def _remove_older(folder: Path, step: int, keep: int) -> None:
    """Keep the newest `keep` up to this step. Those of later steps belong to another history and stay."""
    steps = sorted((int(match[1]), path) for path in folder.iterdir() if (match := _TAG.fullmatch(path.name)))
    older = [path for its_step, path in steps if its_step < step]
    for path in older[: max(0, len(older) - (keep - 1))]:
        # Removed first: a half-removed checkpoint must not look complete.
        with contextlib.suppress(OSError):
            (path / INFO).unlink()
        shutil.rmtree(path, ignore_errors=True)


# Keys under which trainers nest a state dict.
_NESTED_KEYS = ("model", "module", "state_dict")


def load_weights(model: nn.Module, path: Path) -> tuple[list[str], list[str]]:
    """Load a .pth into the model: a state dict, or one under model, module or state_dict; a `module.` prefix is removed. Returns the
    names the file lacks, and those the model lacks."""
    if not path.is_file():
        raise CheckpointError(
            f"pretrained_checkpoint (train.pretrained_model_checkpoint) is {path}, which is not a file: give a .pth, or leave it out"
        )
    found, own = _state_dict(load_tensors(path), path), model.state_dict()
    if not found.keys() & own.keys():
        raise CheckpointError(
            f"{path} has no weight of this model: its first name is '{next(iter(found))}', the model's is '{next(iter(own), 'nothing')}'"
        )
    if any(own[name].numel() and not value.numel() for name, value in found.items() if name in own):
        raise CheckpointError(
            f"{path} has only placeholders, since ZeRO 3 shards weights; convert the checkpoint "
            "(python zero_to_fp32.py . OUT in its `checkpoints` folder) and use OUT/pytorch_model.bin"
        )
    try:
        missing, unexpected = model.load_state_dict(found, strict=False)
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit this model ({' '.join(str(error).split())}): use a file of the same model") from error
    return sorted(missing), sorted(unexpected)


def _state_dict(content: Any, path: Path) -> dict[str, Any]:
    for name in _NESTED_KEYS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    tensors = {name: value for name, value in content.items() if hasattr(value, "shape")} if isinstance(content, dict) else {}
    if not tensors:
        raise CheckpointError(f"{path} has no named weights: expected a state dict, or one under {', '.join(_NESTED_KEYS)}")
    return {str(name).removeprefix("module."): value for name, value in tensors.items()}
