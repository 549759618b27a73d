"""A manifest that is not where it was said to be, or not the tree's. In: the tree, a path. Out: sentences, with the manifests that lie in
that tree.

Standard library only: it is asked before anything is started.
"""

from __future__ import annotations

from pathlib import Path

from seatrial_workloads.librispeech.manifest import HEADER

LONGEST_LINE = 4096


def clause_of_others(root: str, cwd: Path, key: str) -> str:
    """`; data/tree holds one: give dataset.manifest_path=data/tree/manifest.tsv`; empty where the tree `root` holds none.

    Relative paths count from `cwd`; `key` is what the reader sets the path by.
    """
    names = manifests_in(cwd / root)
    if not names:
        return ""
    found = "one" if len(names) == 1 else f"{len(names)} ({', '.join(names)})"
    return f"; {root} holds {found}: give {key}={Path(root) / names[0]}"


def problem_of(manifest: Path, root: Path) -> str:
    """Why the file cannot be the manifest of the tree `root`, by its first two lines; empty where it can."""
    try:
        with manifest.open(encoding="utf-8", errors="replace") as file:
            header, first = file.readline(LONGEST_LINE).rstrip("\n"), file.readline(LONGEST_LINE).split("\t")[0].strip()
    except OSError as error:
        return f"{manifest} cannot be read: {error.strerror}"
    if header != HEADER:
        return f"{manifest} is no manifest: its first line is {header[:60]!r}, and that of a manifest is {HEADER!r}"
    if first and root.is_dir() and not (root / first).is_file():
        return f"{manifest} lists {first}, which is not below {root}: they belong to different trees"
    return ""


def manifests_in(root: Path) -> list[str]:
    """Names of the files directly in `root` that begin as a manifest does."""
    try:
        files = sorted(path for path in root.glob("*.tsv") if path.is_file())
    except OSError:
        return []
    return [path.name for path in files if _begins_as_manifest(path)]


def _begins_as_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(HEADER)) == HEADER.encode()
    except OSError:
        return False
