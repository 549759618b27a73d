"""A checkpoint written by all ranks. In: the facts of the training and what writes. Out: a folder that is whole, or an error on every rank.

It is written aside (`.TAG.part`), waited for, renamed, then named by `latest`; only then are older ones removed. Whoever is killed at any
moment leaves a `latest` that can be loaded. All ranks write into the one folder: nodes must share the run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from seatrial.files import BY_UMASK, write_json, write_text
from seatrial_workloads.common.checkpoints.folder import FACTS, FOLDER, LATEST, OLD, PART, Facts, rank_file, steps_in
from seatrial_workloads.common.checkpoints.saved_tensors import CheckpointError, flush_to_disk
from seatrial_workloads.common.distributed import Ranks


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
    except Exception as error:
        failure = error
    if ranks.largest([float(failure is not None)])[0]:
        raise CheckpointError(_why_not_written(folder, failure)) from failure


def _why_not_written(folder: Path, failure: Exception | None) -> str:
    why = "another rank could not write" if failure is None else _in_one_line(failure)
    free = "?"
    with contextlib.suppress(OSError):
        free = f"{shutil.disk_usage(folder.parent).free / 2**20:.0f}"
    return (
        f"the checkpoint {folder} could not be written ({why}; {free} MiB free there): "
        "the older ones are as they were; make room, or put the run folder on another disk, and resume from the newest"
    )


def _in_one_line(failure: Exception) -> str:
    """Its first line; of a KeyError, say, that alone means little."""
    first = (str(failure).splitlines() or [""])[0]
    kind = "" if isinstance(failure, (OSError, RuntimeError)) and first else type(failure).__name__
    return ": ".join(part for part in (kind, first) if part)


def _begin(part: Path) -> None:
    """An empty folder; what a killed run left half-written goes."""
    part.parent.mkdir(parents=True, exist_ok=True)
    _remove_all(part.parent, PART)
    part.mkdir()


def _remove_all(folder: Path, ending: str) -> None:
    for left in folder.glob(f".*{ending}"):
        with contextlib.suppress(OSError):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def _publish(part: Path, whole: Path, facts: Facts) -> None:
    """From here on it is the newest checkpoint."""
    missing = [rank for rank in range(facts.world_size) if not rank_file(part, rank).exists()]
    if missing:
        raise OSError(f"nothing of rank {missing[0]} is in it: the run folder must be one that all nodes share")
    write_json(part / FACTS, dataclasses.asdict(facts), BY_UMASK)
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
    """Down to `keep`, the one of this step included. One of a later step belongs to another history and stays."""
    older = [path for its_step, path in steps_in(folder) if its_step < step]
    for path in older[: max(0, len(older) - (keep - 1))]:
        # Half of it gone must not look whole.
        with contextlib.suppress(OSError):
            (path / FACTS).unlink()
        shutil.rmtree(path, ignore_errors=True)
