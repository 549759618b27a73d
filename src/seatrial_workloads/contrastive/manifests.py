"""Checks of a manifest path. In: the tree, a path. Out: what is wrong, and the manifests found in the tree.

Standard library only: it runs before anything is started.
"""

from __future__ import annotations

from pathlib import Path

from seatrial_workloads.librispeech.tree import HEADER

MAX_LINE = 4096


def suggest_manifests(root: str, cwd: Path, key: str) -> str:
    """`; data/tree has one: use dataset.manifest_path=data/tree/manifest.tsv`; empty where the tree `root` has none.

    Paths are relative to `cwd`; `key` is the setting or key the user sets.
    """
    names = [path.name for path in sorted((cwd / root).glob("*.tsv")) if _is_manifest(path)]
    if not names:
        return ""
    found = "one" if len(names) == 1 else f"{len(names)} ({', '.join(names)})"
    return f"; {root} has {found}: use {key}={Path(root) / names[0]}"


def manifest_problem(manifest: Path, root: Path) -> str:
    """Why the file cannot be the manifest of `root`, by its first two lines; empty if it can."""
    try:
        with manifest.open(encoding="utf-8", errors="replace") as file:
            header, first = file.readline(MAX_LINE).rstrip("\n"), file.readline(MAX_LINE).split("\t")[0].strip()
    except OSError as error:
        return f"{manifest} cannot be read: {error.strerror}"
    if header != HEADER:
        return f"{manifest} is not a manifest: its first line is {header[:60]!r}; expected {HEADER!r}"
    if first and root.is_dir() and not (root / first).is_file():
        return f"{manifest} lists {first}, which is not below {root}: they belong to different trees"
    return ""


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(HEADER)) == HEADER.encode()
    except OSError:
        return False
