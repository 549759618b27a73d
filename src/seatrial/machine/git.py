"""Which code stands in a folder: commit, branch, and whether tracked files were changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seatrial.shell import output_of

# A repository on a slow network disk must not hold up a run.
GIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class GitState:
    """Empty strings where there is no repository, no commit or no git."""

    commit: str = ""
    branch: str = ""
    dirty: str = ""
    """`true` when a tracked file differs from the commit, else `false`; untracked files (results, data) do not count."""


def git_state(folder: Path) -> GitState:
    """The state of the repository that `folder` belongs to, from one git call."""
    text = output_of(
        ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"],
        cwd=folder,
        timeout_s=GIT_TIMEOUT_S,
    )
    return GitState() if text is None else parse_status(text)


def parse_status(text: str) -> GitState:
    """What `git status --porcelain=v2 --branch` says."""
    lines = text.splitlines()
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit, branch = headers.get("branch.oid", ""), headers.get("branch.head", "")
    changed = any(line and not line.startswith("#") for line in lines)
    return GitState(
        commit="" if commit == "(initial)" else commit,
        branch="HEAD" if branch == "(detached)" else branch,
        dirty="true" if changed else "false",
    )
