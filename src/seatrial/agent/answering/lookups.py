"""What is to be found on this host: names by the resolver, programs on a PATH, paths, and space on disks.

In: a question of the doctor's. Out: what was found, and for each that was not the reason in words; each is looked for within a limit of
its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.agent.answering.at_once import at_once, words_of
from seatrial.agent.answering.code import file_digest
from seatrial.shell import find_program, on_path

# Below the limit of the whole question (agent.answers.LIMIT_S), so that the others of its parts are still told.
NAME_LIMIT_S = 2.0
PATH_LIMIT_S = 3.0


def names(question: Mapping[str, Any]) -> dict[str, Any]:
    """What each of `names`, and this host's own, means here: `addresses`, and for those that mean nothing `troubles`."""
    own = socket.gethostname()
    asked = dict.fromkeys([own, *map(str, question.get("names", ()))])
    told = at_once({name: (_resolving(name), NAME_LIMIT_S) for name in asked})
    return {
        "own": own,
        "addresses": {name: found.get("addresses", []) for name, found in told.items()},
        "troubles": {name: found["trouble"] for name, found in told.items() if "trouble" in found},
    }


def _resolving(name: str) -> Any:
    def resolve() -> dict[str, Any]:
        # As torch and NCCL ask: whatever family the host has.
        found = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
        return {"addresses": list(dict.fromkeys(str(entry[4][0]) for entry in found))}

    return resolve


def programs(question: Mapping[str, Any]) -> dict[str, Any]:
    """Where each of `programs` is on `path` (as the runs have it) in `cwd`; those of `found_beside` also beside this Python."""
    path, cwd = question.get("path"), Path(str(question.get("cwd") or "/"))
    searched = None if path is None else str(path)
    plain = {name: on_path(name, searched, cwd) or "" for name in map(str, question.get("programs", ()))}
    beside = {name: find_program(name, searched, cwd) or "" for name in map(str, question.get("found_beside", ()))}
    return {"where": {**plain, **beside}}


def paths(question: Mapping[str, Any]) -> dict[str, Any]:
    """`troubles` of those of `paths` (path → `file`, `folder` or `any`) that cannot be used; `digests` of the files among the others."""
    asked = {str(path): str(kind) for path, kind in question.get("paths", {}).items()}
    told = at_once({path: (_looking(path, kind), PATH_LIMIT_S) for path, kind in asked.items()})
    return {
        "troubles": {path: found["trouble"] for path, found in told.items() if found.get("trouble")},
        "digests": {path: found["digest"] for path, found in told.items() if found.get("digest")},
    }


def _looking(path: str, kind: str) -> Any:
    def look() -> dict[str, Any]:
        trouble = _trouble_with(Path(path), kind)
        return {"trouble": trouble, "digest": file_digest(Path(path)) if kind == "file" and not trouble else ""}

    return look


def _trouble_with(path: Path, kind: str) -> str:
    try:
        path.stat()
    except OSError as error:
        return f"{path}: {words_of(error)}"
    if kind == "folder" and not path.is_dir():
        return f"{path} is no folder"
    if kind == "file" and not path.is_file():
        return f"{path} is no file"
    needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return "" if os.access(path, needed) else f"{path} may not be read"


def space(question: Mapping[str, Any]) -> dict[str, Any]:
    """For each of `folders` that is there: bytes free and in all (0 where the file system does not count), and whether it is writable."""
    asked = list(map(str, question.get("folders", ())))
    return {"folders": at_once({folder: (_measuring(folder), PATH_LIMIT_S) for folder in asked})}


def _measuring(folder: str) -> Any:
    def measure() -> dict[str, Any]:
        state = os.statvfs(folder)
        return {
            "free_bytes": state.f_bavail * state.f_frsize,
            "total_bytes": state.f_blocks * state.f_frsize,
            "writable": os.access(folder, os.W_OK),
        }

    return measure
