"""What lies in a tree, and under which names we leave our own files in it. In: a folder. Out: paths relative to it, sorted, with `/`.

Links to files and to folders are followed. Names that begin with a dot are passed over: they are other programs' (`._x.flac`) or ours in
the making.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class TreePaths:
    """Every file that preparing leaves at the root of a tree."""

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
class Found:
    """The audio and text files of a tree, and what could not be looked at with the reason."""

    flacs: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def look_through(root: Path) -> Found:
    """Every .flac and .txt under `root`, in whatever case the ending is written."""
    found = Found()
    _look_through(root, "", found, ancestors=())
    found.flacs.sort()
    found.texts.sort()
    return found


def _look_through(folder: Path, rel_folder: str, found: Found, ancestors: tuple[tuple[int, int], ...]) -> None:
    try:
        status = folder.stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        found.refused[rel_folder or "."] = f"the folder cannot be read: {error.strerror}"
        return
    identity = (status.st_dev, status.st_ino)
    # A link to a folder above it would be walked for ever.
    if identity in ancestors:
        return
    for entry in entries:
        if not entry.name.startswith("."):
            _take(entry, f"{rel_folder}{entry.name}", found, (*ancestors, identity))


def _take(entry: os.DirEntry[str], rel_path: str, found: Found, ancestors: tuple[tuple[int, int], ...]) -> None:
    ending = Path(entry.name).suffix.lower()
    if entry.is_dir():
        _look_through(Path(entry.path), f"{rel_path}/", found, ancestors)
    elif ending in (".flac", ".txt"):
        trouble = _trouble_with_name(rel_path)
        if trouble:
            found.refused[rel_path] = trouble
        else:
            (found.flacs if ending == ".flac" else found.texts).append(rel_path)


def _trouble_with_name(rel_path: str) -> str | None:
    """Why a path has no place in a line of text, if so."""
    if any(letter in rel_path for letter in "\t\n\r"):
        return "its name holds a tab or an end of line, which no line of a manifest can hold"
    try:
        rel_path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return None
