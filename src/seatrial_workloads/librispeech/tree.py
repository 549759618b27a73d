"""A LibriSpeech tree: its files, its manifest (`manifest.tsv`), the settings it was prepared with (`prepare.json`), and a lock.

Imports no audio library: the parent process does not need them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from seatrial.core.files import BY_UMASK, write_text

# Version of the conversion, incremented when the same settings would give other bytes.
VERSION = 1
# Smallest synthetic tree: one utterance per split.
MIN_UTTERANCES = 3


class PrepareError(Exception):
    """The preparation cannot continue: what happened, what was expected, what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion:
    """How every file of a tree is converted."""

    target_sr: int
    trim_top_db: float | None
    """None for no trimming."""

    @property
    def record(self) -> dict[str, Any]:
        return {"version": VERSION, "made_by": "prepare", **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSpec:
    """Size and seed of a synthetic tree."""

    num_utterances: int
    seed: int

    @property
    def record(self) -> dict[str, Any]:
        return {"version": VERSION, "made_by": "synthetic", **dataclasses.asdict(self)}


def read_record(path: Path) -> dict[str, Any] | None:
    """None if missing or unreadable."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def write_record(path: Path, record: dict[str, Any]) -> None:
    write_text(path, json.dumps(record) + "\n", BY_UMASK)


def describe_differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """`name was x and would be y` for each difference between two records."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} was {json.dumps(old.get(name))} and would be {json.dumps(new.get(name))}" for name in names)


class RejectedError(Exception):
    """This file cannot be used, and why; others are not affected."""


class Written(NamedTuple):
    num_samples: int
    size_bytes: int


class Rejected(NamedTuple):
    reason: str


class WriteFailed(NamedTuple):
    """The output could not be written: a disk error, which concerns every file."""

    error_number: int | None
    what: str


SAMPLE_RATE = 16_000
"""Sample rate of every file of LibriSpeech, in Hz."""
HEADER = "rel_path\tnum_samples\tduration_sec"


class ManifestError(ValueError):
    """The file exists but is not a manifest."""


class Row(NamedTuple):
    rel_path: str
    num_samples: int
    duration_s: float


def write_manifest(path: Path, num_samples: Mapping[str, int], sample_rate: int) -> None:
    """Write the manifest of these files (path → number of samples), atomically."""
    rows = [f"{rel_path}\t{count}\t{count / sample_rate:.6f}" for rel_path, count in sorted(num_samples.items())]
    write_text(path, "".join(f"{line}\n" for line in (HEADER, *rows)), BY_UMASK)


def read_manifest(path: Path) -> list[Row]:
    """Its rows; a ManifestError names a bad line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not a manifest: {error}") from error
    if not lines or lines[0] != HEADER:
        found = repr(lines[0][:80]) if lines else "nothing"
        raise ManifestError(f"{path} is not a manifest: its first line is {found}; expected {HEADER!r}")
    return [_row(path, number, line) for number, line in enumerate(lines[1:], start=2)]


def is_inside_tree(rel_path: str) -> bool:
    """Whether a manifest's path names something below the root."""
    path = PurePosixPath(rel_path)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts


def _row(path: Path, number: int, line: str) -> Row:
    try:
        rel_path, num_samples, duration_s = line.split("\t")
        return Row(rel_path, int(num_samples), float(duration_s))
    except ValueError as error:
        raise ManifestError(f"{path}:{number}: {line[:80]!r} is not a row; expected path, number of samples and seconds") from error


FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Create the folder if needed and lock it against other processes; an OSError inside becomes a PrepareError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(folder, handle)
            yield
        finally:
            os.close(handle)
    except OSError as error:
        raise write_error(folder, error.errno, str(error)) from error


def _lock(folder: Path, handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PrepareError(f"another process is preparing {folder} now: wait for it, or choose another --output-root") from error
    except OSError:
        # A file system without locks. Files are still written atomically.
        pass


def write_error(folder: Path, error_number: int | None, what: str) -> PrepareError:
    """The error for a failed write in `folder`."""
    if error_number in FULL:
        return PrepareError(f"the disk of {folder} is full: finished files are kept; free some space and run the same command again")
    return PrepareError(f"{folder} is not writable ({what}): finished files are kept; fix it and run the same command again")


@dataclass(frozen=True)
class TreePaths:
    """Files at the root of a prepared tree."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "prepare.json"

    @property
    def prepared(self) -> Path:
        return self.root / "prepared.tsv"

    @property
    def rejected(self) -> Path:
        return self.root / "rejected.tsv"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.tsv"


@dataclass
class TreeFiles:
    """Audio and text files of a tree, and unusable entries with the reason."""

    flacs: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def scan_tree(root: Path) -> TreeFiles:
    """Every .flac and .txt under `root`; suffixes in any case."""
    found = TreeFiles()
    _scan_folder(root, "", found, ancestors=())
    found.flacs.sort()
    found.texts.sort()
    return found


def _scan_folder(folder: Path, rel_folder: str, found: TreeFiles, ancestors: tuple[tuple[int, int], ...]) -> None:
    try:
        status = folder.stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        found.refused[rel_folder or "."] = f"the folder cannot be read: {error.strerror}"
        return
    identity = (status.st_dev, status.st_ino)
    # A link to a parent folder would be walked for ever.
    if identity in ancestors:
        return
    for entry in entries:
        if not entry.name.startswith("."):
            _scan_entry(entry, f"{rel_folder}{entry.name}", found, (*ancestors, identity))


def _scan_entry(entry: os.DirEntry[str], rel_path: str, found: TreeFiles, ancestors: tuple[tuple[int, int], ...]) -> None:
    ending = Path(entry.name).suffix.lower()
    if entry.is_dir():
        _scan_folder(Path(entry.path), f"{rel_path}/", found, ancestors)
    elif ending in (".flac", ".txt"):
        problem = _name_problem(rel_path)
        if problem:
            found.refused[rel_path] = problem
        else:
            (found.flacs if ending == ".flac" else found.texts).append(rel_path)


def _name_problem(rel_path: str) -> str | None:
    """Why a path cannot be in a manifest, if so."""
    if any(letter in rel_path for letter in "\t\n\r"):
        return "its name contains a tab or line break, which a manifest cannot represent"
    try:
        rel_path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return None
