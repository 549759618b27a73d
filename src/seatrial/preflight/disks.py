"""Space and inodes where a campaign writes: the output's disk, the folder for temporary files, caches that variables name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.units import format_bytes

# Below this a campaign's logs and events are likely to end in a full disk.
LEAST_FREE_BYTES = 200 << 20
LITTLE_FREE_BYTES = 1 << 30
# An attempt leaves about thirty files and folders; links and tables come on top.
INODES_OF_A_RUN = 50
# Below this not even the next run is sure to find room.
LEAST_FREE_INODES = 200
CACHE_VARIABLES = (
    "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR", "XDG_CACHE_HOME",
)  # fmt: skip

SPACE = Question(
    name="disk space",
    looks_at="free space on the output's disk; little is said, too little to begin with is refused",
    prevents="OSError: [Errno 28] No space left on device",
    fix="free at least {least} or choose another disk with --out",
    in_docs={"least": format_bytes(LEAST_FREE_BYTES)},
    refuses=True,
)
INODES = Question(
    name="inodes",
    looks_at="free inodes on the output's disk against the files the runs will leave; few are said, too few for one run are refused",
    prevents="OSError: [Errno 28] No space left on device, while df shows free space",
    fix="remove folders of many small files (df -i shows where) or choose another disk with --out",
    refuses=True,
)
TEMPORARY = Question(
    name="temporary files",
    looks_at="free space and write access in the folder for temporary files (TMPDIR)",
    prevents="OSError: [Errno 28] No space left on device: '/tmp/torchinductor_…'; or: No usable temporary directory found",
    fix="free space in {folder}, or point TMPDIR at another disk",
)
CACHE = Question(
    name="cache {variable}",
    looks_at="free space and write access where a variable puts the caches of Hugging Face, torch and Triton",
    prevents="OSError: [Errno 28] No space left on device, or PermissionError, while a model or a kernel is cached",
    fix="free space in {folder}, or point {variable} at another disk",
)
QUESTIONS = (SPACE, INODES, TEMPORARY, CACHE)


@dataclass(frozen=True, kw_only=True)
class DiskFacts:
    """What a file system has left for us."""

    folder: Path
    """The nearest folder that exists."""
    total_bytes: int = 0
    """0 where the file system does not count, as some that are translated by a server."""
    free_bytes: int = 0
    total_inodes: int = 0
    """0 where the file system does not count them."""
    free_inodes: int = 0
    writable: bool = True
    problem: str = ""
    """Why it could not be asked."""


def checks(need: Need) -> Iterator[Check]:
    output = read_disk(need.output)
    yield space(output)
    yield inodes(output, len(need.runs))
    for folder in sorted({Path(given.get("TMPDIR") or "/tmp") for given in _environments(need)}):
        yield temporary(read_disk(folder))
    for variable, folder in cache_folders(need):
        yield cache(variable, read_disk(folder))


def read_disk(folder: Path) -> DiskFacts:
    """The file system `folder` is on, or will be on."""
    near = nearest_existing(folder)
    try:
        state = os.statvfs(near)
    except OSError as error:
        return DiskFacts(folder=near, problem=error.strerror or str(error))
    return DiskFacts(
        folder=near,
        total_bytes=state.f_blocks * state.f_frsize,
        free_bytes=state.f_bavail * state.f_frsize,
        total_inodes=state.f_files,
        free_inodes=state.f_favail,
        writable=os.access(near, os.W_OK),
    )


def nearest_existing(folder: Path) -> Path:
    """`folder`, or the nearest folder above it that is there."""
    folder = folder.absolute()
    with contextlib.suppress(OSError):
        # A folder that may not even be looked for is told by whoever tries it.
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
    return folder


def cache_folders(need: Need) -> list[tuple[str, Path]]:
    """Every cache folder that the caller or a plan's env names, once."""
    settings = _environments(need)
    return sorted({(name, Path(given[name]).expanduser()) for given in settings for name in CACHE_VARIABLES if given.get(name)})


def _environments(need: Need) -> list[dict[str, str]]:
    return [need.environment(spec) for spec in need.runs] or [dict(need.caller)]


def space(disk: DiskFacts) -> Check:
    # What it is refused for, and what it is warned of.
    least = format_bytes(LEAST_FREE_BYTES if disk.free_bytes < LEAST_FREE_BYTES else LITTLE_FREE_BYTES)
    if disk.problem:
        return SPACE.answer(False, f"{disk.folder} cannot be asked: {disk.problem}", least=least)
    if disk.total_bytes == 0:
        return SPACE.answer(True, "not counted by this file system", least=least)
    refuses = disk.free_bytes < LEAST_FREE_BYTES
    return SPACE.answer(
        disk.free_bytes >= LITTLE_FREE_BYTES, f"{format_bytes(disk.free_bytes)} free in {disk.folder}", refuses=refuses, least=least
    )


def inodes(disk: DiskFacts, runs: int) -> Check:
    if disk.total_inodes == 0:
        return INODES.answer(True, "not counted by this file system")
    wanted = LEAST_FREE_INODES + INODES_OF_A_RUN * runs
    found = f"{disk.free_inodes} free of {disk.total_inodes}, about {wanted} wanted"
    # Runs that are finished want none, so what is wanted may be far less. None at all is either a disk that does not tell, or one on
    # which the trial of the output folder fails.
    return INODES.answer(disk.free_inodes >= wanted, found, refuses=0 < disk.free_inodes < LEAST_FREE_INODES)


def temporary(disk: DiskFacts) -> Check:
    return TEMPORARY.answer(_has(disk, LEAST_FREE_BYTES), _found(disk), folder=disk.folder)


def cache(variable: str, disk: DiskFacts) -> Check:
    return CACHE.answer(_has(disk, LITTLE_FREE_BYTES), _found(disk), variable=variable, folder=disk.folder)


def _has(disk: DiskFacts, wanted_bytes: int) -> bool:
    return not disk.problem and disk.writable and (disk.total_bytes == 0 or disk.free_bytes >= wanted_bytes)


def _found(disk: DiskFacts) -> str:
    if disk.problem:
        return f"{disk.folder} cannot be asked: {disk.problem}"
    return f"{format_bytes(disk.free_bytes)} free in {disk.folder}" + ("" if disk.writable else ", which cannot be written to")
