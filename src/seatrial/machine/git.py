"""Which code stands in a folder: commit, branch, whether tracked files were changed, and a hash of those changes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.shell import bytes_of, output_of

# A repository on a slow network disk must not hold up a run.
GIT_TIMEOUT_S = 5.0
# Reads only, and takes no lock that a person's own git would wait for.
_GIT = ("git", "--no-optional-locks")
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
    """Hash of what tracked files differ by; empty when they do not, `unknown` when git could not tell in time."""


def git_state(folder: Path, output: Path | None = None) -> GitState:
    """The state of the repository that `folder` belongs to; what lies in `output`, a campaign's results, is no change of the code."""
    text = output_of([*_GIT, "status", "--porcelain=v2", "--branch", "--untracked-files=no"], cwd=folder, timeout_s=GIT_TIMEOUT_S)
    state = GitState() if text is None else parse_status(text)
    if state.dirty != "true":
        return state
    changes = _diff_sha256(folder, output)
    return replace(state, dirty="true" if changes else "false", diff_sha256=changes)


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


def _diff_sha256(folder: Path, output: Path | None) -> str:
    changes = bytes_of([*_GIT, *_DIFF, "--", ":/", *_all_but(folder, output)], cwd=folder, timeout_s=GIT_TIMEOUT_S)
    if changes is None:
        return UNKNOWN
    return hashlib.sha256(changes).hexdigest() if changes else ""


def _all_but(folder: Path, output: Path | None) -> list[str]:
    """What leaves `output` out, where it lies in the repository: somebody may have committed results of an earlier campaign."""
    top = None if output is None else output_of([*_GIT, "rev-parse", "--show-toplevel"], cwd=folder, timeout_s=GIT_TIMEOUT_S)
    if output is None or not top:
        return []
    inside = (folder / output).resolve()
    root = Path(top.rstrip("\n")).resolve()
    return [f":(top,exclude,literal){inside.relative_to(root)}"] if root in inside.parents else []
