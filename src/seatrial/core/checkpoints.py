"""Checkpoints of a training on disk, and which are complete. Standard library only: trainers write them, the harness reads them.

    RUN_DIR/checkpoints/latest                   name of the newest complete checkpoint
    RUN_DIR/checkpoints/NAME/checkpoint.json     its step, the number of ranks, and the size of every file beside it
    RUN_DIR/checkpoints/.NAME.part/              one that is being written, or was when its run was killed

A checkpoint is written aside and renamed, so an incomplete one never counts as whole; sizes show a file that was truncated later.
Other formats are only detected: which of theirs are complete, only their script knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core import files

FOLDER, LATEST, INFO = "checkpoints", "latest", "checkpoint.json"
PART, OLD = ".part", ".old"
LONGEST_NAME = 4096


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """A complete checkpoint."""

    folder: Path
    step: int
    """The last step that was completed before it was written."""
    world_size: int | None
    """Ranks that wrote it; None where its trainer does not record them."""


@dataclass(frozen=True, kw_only=True)
class FoundCheckpoints:
    """Contents of a folder of checkpoints."""

    whole: tuple[StoredCheckpoint, ...] = ()
    """The newest first."""
    skipped: tuple[str, ...] = ()
    """Unusable checkpoints newer than the first whole one, if any: name and reason."""
    other_format: bool = False
    """There are checkpoints, none of them in this format."""


def find_checkpoints(folder: Path) -> FoundCheckpoints:
    """The checkpoints in `folder`. Where it has a `latest`, those of a later step belong to another history and are skipped."""
    named = _read_latest(folder)
    whole: list[StoredCheckpoint] = []
    damaged: list[tuple[int, str]] = []
    others = 0
    for path in _folders(folder):
        step, problem = _check(path)
        if step is None and not problem:
            others += not path.name.startswith(".")
        elif problem:
            damaged.append((_number_in(path.name) if step is None else step, f"{path.name}: {problem}"))
        else:
            info = read_info(path) or {}
            size = info.get("world_size")
            whole.append(StoredCheckpoint(folder=path, step=step or 0, world_size=size if isinstance(size, int) else None))
    newest = next((one.step for one in whole if one.folder.name in (named, f".{named}{OLD}")), None) if named else None
    # A whole folder comes before the copy of the same step that it replaced.
    usable = sorted((one for one in whole if newest is None or one.step <= newest), key=lambda one: (-one.step, one.folder.name[0] == "."))
    last_step = usable[0].step if usable else -1
    skipped = tuple(text for step, text in sorted(damaged, reverse=True) if step > last_step)
    return FoundCheckpoints(whole=tuple(usable), skipped=skipped, other_format=bool(others) and not whole and not damaged)


def damage_of(folder: Path) -> str:
    """The problem with a checkpoint's files; empty for a whole one."""
    return _check(folder)[1] or ("" if (folder / INFO).is_file() else f"it has no {INFO}")


def read_info(folder: Path) -> dict[str, Any] | None:
    """Its checkpoint.json; None where that cannot be read."""
    info = files.read_json(folder / INFO)
    return info if isinstance(info, dict) else None


def file_sizes(folder: Path) -> dict[str, int]:
    """The size of every file below `folder`, for its checkpoint.json."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


def _check(folder: Path) -> tuple[int | None, str]:
    """(step, problem); neither for what is not a checkpoint of this format."""
    if folder.name.startswith(".") and folder.name.endswith(PART):
        return None, "it was not written to its end"
    if not (folder / INFO).exists():
        return None, ""
    info = read_info(folder)
    step = (info or {}).get("step")
    if info is None or not isinstance(step, int) or isinstance(step, bool):
        return None, f"its {INFO} cannot be read"
    sizes = info.get("files")
    return step, next(_wrong_sizes(folder, sizes), "") if isinstance(sizes, dict) else ""


def _wrong_sizes(folder: Path, sizes: dict[str, Any]) -> Iterator[str]:
    for name, size in sizes.items():
        try:
            found = (folder / name).stat().st_size
        except OSError:
            yield f"{name} is missing"
            continue
        if found != size:
            yield f"{name} has {found:,} of {size:,} bytes"


def _number_in(name: str) -> int:
    """The step in a folder's name, without a checkpoint.json: only for the order in reports."""
    digits = "".join(character if character.isdecimal() else " " for character in name).split()
    return int(digits[-1]) if digits else 0


def _folders(folder: Path) -> list[Path]:
    """Everything in it that could be a checkpoint; files of other formats too, but not DeepSpeed's converters."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in found if path.is_dir() or not (path.name == LATEST or path.name.startswith(".") or path.suffix == ".py")]


def _read_latest(folder: Path) -> str:
    try:
        with files.open_file(folder / LATEST) as source:
            return source.read(LONGEST_NAME).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
