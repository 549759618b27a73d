"""The folder a campaign writes to, which every host must see as one and the same: files put by one are seen by the others, renamed at once,
and locks hold across hosts. And the space on it, and on each host's disk for temporary files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.preflight.disks import LEAST_FREE_BYTES, LITTLE_FREE_BYTES
from seatrial.preflight.hosts.answers import Answers, part, texts, trouble
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question
from seatrial.units import format_bytes

SHARED = Question(
    name="output folder is shared",
    looks_at="that a file which the head puts into the output folder is seen by each host, and one that each host puts there by the head",
    prevents="FileNotFoundError: [Errno 2] No such file or directory: '…/call.json' on the hosts, or results of one host only",
    fix="choose a folder on a disk that all hosts mount at the same path, with --out or `output`",
    refuses=True,
)
WRITABLE = Question(
    name="output folder is writable",
    looks_at="that each host may write, replace and rename files in the output folder",
    prevents="{error}, on one host's ranks",
    fix="mend the folder's permissions, its mount (read-only?) or its space on that host; the user must be the same on all of them",
    in_docs={"error": "PermissionError: [Errno 13] Permission denied, or OSError: [Errno 28] No space left on device"},
    refuses=True,
)
RENAME = Question(
    name="rename is seen",
    looks_at="that a file which a host replaces by a rename is seen, whole and new, by the head within two seconds",
    prevents="JSONDecodeError, or an older file read for a new one: half a result taken for a whole one",
    fix="mount the folder without caching of names (NFS: lookupcache=positive, actimeo=1), or choose another disk with --out",
)
LOCK = Question(
    name="lock is seen",
    looks_at="that a lock which the head holds in the output folder is held for the other hosts too",
    prevents="two campaigns in one folder that overwrite each other: the second is not refused when it is started on another host",
    fix="mount the folder with locks (NFS 4; Lustre: -o flock), or never start two campaigns in it",
)
SPACE = Question(
    name="space in the output folder",
    looks_at="free space of the output folder as each host sees it: a quota or a disk of its own may leave one host less",
    prevents="OSError: [Errno 28] No space left on device, on one host's ranks",
    fix="free at least {least} there, or choose another disk with --out",
    in_docs={"least": format_bytes(LEAST_FREE_BYTES)},
    refuses=True,
)
TEMPORARY = Question(
    name="temporary files",
    looks_at="free space and write access in each host's own folder for temporary files (TMPDIR)",
    prevents="OSError: [Errno 28] No space left on device: '/tmp/torchinductor_…'; or: No usable temporary directory found",
    fix="free space in {folder} there, or point TMPDIR at another disk",
)
QUESTIONS = (SHARED, WRITABLE, RENAME, LOCK, SPACE, TEMPORARY)
ERRORS = {
    "no space": "OSError: [Errno 28] No space left on device",
    "read-only": "OSError: [Errno 30] Read-only file system",
    "no such": "FileNotFoundError: [Errno 2] No such file or directory",
    "quota": "OSError: [Errno 122] Disk quota exceeded",
}
DENIED = "PermissionError: [Errno 13] Permission denied"


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    for host in wanted.names:
        if answers.answered(host):
            written = trouble(part(answers.first, host, "put"))
            seen = _shared(wanted, answers, host)
            yield from seen
            yield _writable(wanted, host, written)
            if all(found.check.ok for found in seen) and host in answers.second and not written and host != wanted.head:
                yield from _across(wanted, answers, host)
            yield from _space(wanted, part(answers.first, host, "space"), host)


def _shared(wanted: Wanted, answers: Answers, host: str) -> list[HostCheck]:
    if host == wanted.head or host not in answers.second or wanted.head not in answers.second:
        return []
    of_head = trouble(part(answers.first, wanted.head, "put"))
    told, told_head = part(answers.second, host, "look"), part(answers.second, wanted.head, "look")
    blind = trouble(told) or texts(told, "troubles").get(answers.files[wanted.head], "")
    unseen = texts(told_head, "troubles").get(answers.files[host], "")
    found = f"{wanted.folder} is one folder"
    if of_head:
        # Nothing can be said: the head's own checks tell why.
        return []
    if blind:
        found = f"in {wanted.folder} the head's file is not seen: {blind}"
    elif unseen and not trouble(part(answers.first, host, "put")):
        found = f"in {wanted.folder} its file is not seen by the head: {unseen}"
    else:
        unseen = ""
    return [HostCheck(host=host, check=SHARED.answer(not blind and not unseen, found, refuses=wanted.planned))]


def _writable(wanted: Wanted, host: str, written: str) -> HostCheck:
    error = next((error for word, error in ERRORS.items() if word in written.lower()), DENIED)
    return HostCheck(host=host, check=WRITABLE.answer(not written, written or wanted.folder, refuses=wanted.planned, error=error))


def _across(wanted: Wanted, answers: Answers, host: str) -> Iterator[HostCheck]:
    replaced = trouble(part(answers.second, host, "replace"))
    if wanted.head in answers.third and not replaced:
        late = texts(part(answers.third, wanted.head, "look"), "troubles").get(answers.files[host], "")
        yield HostCheck(host=host, check=RENAME.answer(not late, late or "seen at once"))
    if trouble(part(answers.first, wanted.head, "lock")):
        return
    told = part(answers.second, host, "is_held")
    held = told.get("held") is True
    found = "held" if held else trouble(told) or "not held here while the head holds it"
    yield HostCheck(host=host, check=LOCK.answer(held, found))


def _space(wanted: Wanted, told: Mapping[str, Any], host: str) -> Iterator[HostCheck]:
    folders = told.get("folders")
    known = folders if isinstance(folders, dict) else {}
    for folder, question in ((wanted.folder, SPACE), (wanted.temporary, TEMPORARY)):
        disk = known.get(folder)
        if not isinstance(disk, dict):
            continue
        free, complaint = disk.get("free_bytes"), str(disk.get("trouble") or "")
        free = free if isinstance(free, int) and disk.get("total_bytes") else None
        if question is SPACE and complaint:
            # Whether the folder is there at all is told above.
            continue
        least = LITTLE_FREE_BYTES if question is SPACE else LEAST_FREE_BYTES
        ok = not complaint and (free is None or free >= least) and (question is SPACE or disk.get("writable") is True)
        amount = "not counted" if free is None else f"{format_bytes(free)} free"
        found = (
            f"{folder}: {complaint}"
            if complaint
            else f"{amount} in {folder}" + ("" if disk.get("writable") else ", which cannot be written to")
        )
        refuses = wanted.planned and free is not None and free < LEAST_FREE_BYTES
        needed = format_bytes(LEAST_FREE_BYTES if refuses else LITTLE_FREE_BYTES)
        yield HostCheck(host=host, check=question.answer(ok, found, refuses=refuses, least=needed, folder=folder))
