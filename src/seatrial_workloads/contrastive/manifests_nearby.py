"""A manifest that is not where it was said to be. In: the tree it belongs to. Out: the manifests that lie in that tree, for the message.

Standard library only: it is asked before anything is started.
"""

from __future__ import annotations

from pathlib import Path

from seatrial_workloads.librispeech.manifest import HEADER


def clause_of_others(root: str, cwd: Path, key: str) -> str:
    """`; data/tree holds one: give dataset.manifest_path=data/tree/manifest.tsv`; empty where the tree `root` holds none.

    Relative paths count from `cwd`; `key` is what the reader sets the path by.
    """
    names = manifests_in(cwd / root)
    if not names:
        return ""
    found = "one" if len(names) == 1 else f"{len(names)} ({', '.join(names)})"
    return f"; {root} holds {found}: give {key}={Path(root) / names[0]}"


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
