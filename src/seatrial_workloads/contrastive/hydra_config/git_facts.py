"""Which code a training ran. In: a folder. Out: the git part of run_context.json; `error` says why there is none.

As in the harness's own tables, `dirty` is about tracked files only; what is untracked stands in `status_porcelain`. git is asked as
seatrial.machine.git asks it; what is told is another thing: names of files for people here, a hash to tell trees apart there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from seatrial.machine.git import GIT, GIT_TIMEOUT_S
from seatrial.shell import output_of

MOST_STATUS_LINES = 200
UNTRACKED = "??"


def git_facts(folder: Path) -> dict[str, Any]:
    """Commit, branch and changes of the repository that `folder` belongs to."""
    root = _asked(folder, "rev-parse", "--show-toplevel")
    if root is None:
        return _nothing(
            f"no answer about {folder}: no repository, or slower than {GIT_TIMEOUT_S:g} s" if shutil.which("git") else "no git on PATH"
        )
    status = _asked(folder, "status", "--porcelain")
    lines = (status or "").splitlines()
    return {
        "available": True,
        "repo_root": root.strip(),
        "commit": (_asked(folder, "rev-parse", "HEAD") or "").strip(),
        "branch": (_asked(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": None if status is None else any(not line.startswith(UNTRACKED) for line in lines),
        "status_porcelain": lines[:MOST_STATUS_LINES],
        "status_truncated": len(lines) > MOST_STATUS_LINES,
        "error": f"git status did not answer within {GIT_TIMEOUT_S:g} s" if status is None else "",
    }


def not_asked() -> dict[str, Any]:
    return _nothing("not asked: train.startup_metadata_git is false")


def _nothing(error: str) -> dict[str, Any]:
    unknown: dict[str, Any] = {
        "repo_root": "",
        "commit": "",
        "branch": "",
        "dirty": None,
        "status_porcelain": [],
        "status_truncated": False,
    }
    return {"available": False, **unknown, "error": error}


def _asked(folder: Path, *words: str) -> str | None:
    return output_of([*GIT, *words], cwd=folder, timeout_s=GIT_TIMEOUT_S)
