"""The folder a campaign writes to, tried for real: a file is made, renamed, locked and removed. And what kind of disk it is on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.paths import TRIAL_PREFIX
from seatrial.preflight.disks import nearest_existing
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check

MOUNTS = Path("/proc/self/mountinfo")
# Shared or translated by a server: slower to lock and rename, and an error may come a while after the write.
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "afs", "virtiofs")
TRIED_TEXT = b"written to try this folder\n"

OUTPUT = Question(
    name="output folder",
    looks_at="the output folder, or the nearest one above it: a file is written, renamed, locked and removed",
    prevents="{error} while the first run starts",
    in_docs={"error": "PermissionError: [Errno 13] Permission denied, or OSError: [Errno 30] Read-only file system,"},
    fix="choose another folder with --out, or mend this one: its permissions, its mount (read-only?) or its space",
    refuses=True,
)
FILE_SYSTEM = Question(
    name="file system",
    looks_at="whether the output is on a network file system, in memory, or in a container's own layer",
    prevents="results that are gone with the container or the next start, or slow to appear for others",
    fix="choose a folder on a local disk with --out, and copy it when the campaign is over",
    only_tells=True,
)
QUESTIONS = (OUTPUT, FILE_SYSTEM)


@dataclass(frozen=True, kw_only=True)
class FolderTrial:
    """What came of writing to a folder."""

    folder: Path
    """Where it was tried: the nearest folder that exists."""
    act: str = ""
    """What could not be done; empty when all could."""
    error: str = ""


def checks(need: Need) -> Iterator[Check]:
    yield output(need.output, try_folder(need.output))
    yield file_system(file_system_of(need.output))


def try_folder(folder: Path) -> FolderTrial:
    """Write, rename, lock and remove one small file; nothing is left behind."""
    near = nearest_existing(folder)
    act = "made"
    names: list[Path] = []
    try:
        handle, name = tempfile.mkstemp(dir=near, prefix=TRIAL_PREFIX)
        names.append(Path(name))
        try:
            act = "written"
            os.write(handle, TRIED_TEXT)
            os.fsync(handle)
            act = "locked"
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        act = "renamed"
        names.append(Path(f"{name}.renamed"))
        os.replace(*names)
        act = "removed"
        names[-1].unlink()
    except OSError as error:
        return FolderTrial(folder=near, act=act, error=f"{type(error).__name__}: [Errno {error.errno}] {error.strerror}")
    finally:
        for path in names:
            with contextlib.suppress(OSError):
                path.unlink()
    return FolderTrial(folder=near)


def output(wanted: Path, trial: FolderTrial) -> Check:
    found = f"in {trial.folder} no file can be {trial.act}: {trial.error}" if trial.act else f"{wanted} can be written to"
    return OUTPUT.answer(not trial.act, found, error=trial.error or "PermissionError: [Errno 13] Permission denied")


def file_system_of(folder: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system `folder` is on, such as `ext4`; empty when the kernel does not tell."""
    with contextlib.suppress(OSError):
        return _type_in(mounts.read_text(encoding="utf-8", errors="replace"), nearest_existing(folder).resolve())
    return ""


def _type_in(text: str, folder: Path) -> str:
    """The deepest mount that holds `folder`; of two on one place the later hides the earlier."""
    best, best_type = -1, ""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        words = left.split()
        if len(words) < 5 or not right:
            continue
        place = Path(words[4].encode().decode("unicode_escape"))
        if folder.is_relative_to(place) and len(place.parts) >= best:
            best, best_type = len(place.parts), right.split()[0]
    return best_type


def file_system(kind: str) -> Check:
    note = ""
    if kind in REMOTE or kind.startswith("fuse"):
        note = ": shared over the network or translated by a server"
    elif kind in ("tmpfs", "ramfs"):
        note = ": in memory, gone after a restart"
    elif kind == "overlay":
        note = ": a container's own layer, gone with the container"
    return FILE_SYSTEM.answer(True, (kind or "not told by the kernel") + note)
