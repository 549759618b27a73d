"""Which code stands in a folder: commit, branch, whether tracked files were changed, and a hash of those changes.

In: a folder. Out: a `GitState`; empty where it is no repository or there is no git, `unknown` where git does not tell in time.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.shell import NoEndError, bytes_of

# A repository on a slow network disk must not hold up a run.
GIT_TIMEOUT_S = 5.0
# The changes of a tree with large files in it; what writes more than this is not git, or nothing to hash before every run.
MOST_BYTES = 256 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# Reads only, and takes no lock that a person's own git would wait for.
GIT = ("git", "--no-optional-locks")
# Everything that a user's own settings could change is said, so that the same changes are the same bytes for everybody.
_DIFF = (
    "diff", "HEAD", "--patch", "--binary", "--full-index", "--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--no-renames", "-O/dev/null",
    "--submodule=diff", "--ignore-submodules=untracked",
)  # fmt: skip
UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class GitState:
    """Empty strings where there is no repository, no commit or no git."""

    commit: str = ""
    branch: str = ""
    dirty: str = ""
    """`true` when a tracked file differs from the commit, else `false`; untracked files (results, data) do not count."""
    diff_sha256: str = ""
    """Hash of what tracked files differ by; empty when they do not. Where git did not tell in time, `unknown` and a word that is never
    used twice: what is not known is like nothing else, not even like another unknown."""


def git_state(folder: Path, output: Path | None = None) -> GitState:
    """The state of the repository that `folder` belongs to; what lies in `output`, a campaign's results, is no change of the code."""
    try:
        told = _told(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    except NoEndError:
        return GitState(diff_sha256=_unknown())
    state = GitState() if told is None else parse_status(_text(told))
    if state.dirty != "true":
        return state
    changes = _diff_sha256(folder, output)
    return replace(state, dirty="true" if changes else "false", diff_sha256=changes)


def parse_status(text: str) -> GitState:
    """What `git status --porcelain=v2 --branch` says; nothing where it says something else."""
    lines = text.splitlines()
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit, branch = headers.get("branch.oid", ""), headers.get("branch.head", "")
    if not _COMMIT.fullmatch(commit) and commit != "(initial)":
        # Something that is called git and is not, or speaks otherwise: nothing is known of the code.
        return GitState()
    changed = any(line and not line.startswith("#") for line in lines)
    return GitState(
        commit="" if commit == "(initial)" else commit,
        branch="HEAD" if branch == "(detached)" else branch,
        dirty="true" if changed else "false",
    )


def _diff_sha256(folder: Path, output: Path | None) -> str:
    try:
        changes = _told(folder, *_DIFF, "--", ":/", *_all_but(folder, output))
    except NoEndError:
        changes = None
    if changes is None:
        return _unknown()
    return hashlib.sha256(changes).hexdigest() if changes else ""


def _all_but(folder: Path, output: Path | None) -> list[str]:
    """What leaves `output` out, where it lies in the repository: somebody may have committed results of an earlier campaign."""
    top = None if output is None else _told(folder, "rev-parse", "--show-toplevel")
    if output is None or not top:
        return []
    inside = (folder / output).resolve()
    root = Path(_text(top).rstrip("\n").replace("\0", "")).resolve()
    return [f":(top,exclude,literal){inside.relative_to(root)}"] if root in inside.parents else []


def _told(folder: Path, *words: str) -> bytes | None:
    """What git writes; None when it cannot tell: no git, no repository. A NoEndError is another matter: there is one."""
    return bytes_of([*GIT, *words], cwd=folder, timeout_s=GIT_TIMEOUT_S, most_bytes=MOST_BYTES)


def _text(told: bytes) -> str:
    return told.decode("utf-8", errors="replace")


def _unknown() -> str:
    return f"{UNKNOWN} {uuid.uuid4().hex[:12]}"
