"""What else lies in an attempt's folder: environment.json, its span of steps, files merged back after a disk failure.

Any of the files may be missing, truncated, huge or damaged. Stored records are read by records/stored.py.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePath
from typing import NamedTuple

from seatrial.core import files
from seatrial.core.checkpoints import find_checkpoints
from seatrial.core.fallback import Recovered, merge_fallback
from seatrial.core.paths import ATTEMPT_NAME, AttemptPaths
from seatrial.records.caution import Caution
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.stored import read_resumption

LAST_LINES = 50
"""The last steps of a rank are among so many events."""


def have_same_content(one: Path, other: Path) -> bool:
    """False where one of them cannot be read."""
    try:
        with files.open_file(one) as first, files.open_file(other) as second:
            return os.fstat(first.fileno()).st_size == os.fstat(second.fileno()).st_size and first.read() == second.read()
    except OSError:
        return False


class StepSpan(NamedTuple):
    """The first and the last step that an attempt is known to have taken; `last` is `first - 1` where it took none."""

    first: int
    last: int


def read_step_span(attempt: AttemptPaths) -> StepSpan | None:
    """The steps that the events of the lowest rank show; a killed attempt left lines unwritten, so heartbeats and checkpoints count too.
    None where no step is known."""
    first: object = None
    known: list[object] = [checkpoint.step for checkpoint in find_checkpoints(attempt.checkpoints).whole]
    for events in attempt.all_events()[:1]:
        first = next((event.get("step") for event in files.read_json_lines(events) if event.get("kind") == "step"), None)
        known += [event.get("step") for event in files.last_json_lines(events, LAST_LINES) if event.get("kind") == "step"]
    for heartbeats in attempt.all_heartbeats()[:1]:
        known += [heartbeat.get("step") for heartbeat in files.last_json_lines(heartbeats, 2)]
    steps = [step for step in known if isinstance(step, int)]
    start = first if isinstance(first, int) else _planned_start(attempt)
    return StepSpan(start, max(steps)) if steps and start is not None else None


def _planned_start(attempt: AttemptPaths) -> int | None:
    """The first step to take; None where only the script decides it."""
    resumption = read_resumption(attempt)
    if resumption is None or resumption.from_attempt is None:
        return 0
    return None if resumption.step is None else resumption.step + 1


def unusable_file(path: Path, why: str, subject: str = "", then: str = "run the run again, or restore the file from a copy") -> Caution:
    """The caution about a file that was skipped."""
    return Caution(kind="unreadable_file", subject=subject, text=f"{path} cannot be used ({why}) and was skipped; {then}.")


def read_environment(path: Path) -> dict[str, str] | None:
    """Environment variables of the ranks by environment.json; None without a readable file. Malformed entries are skipped."""
    stored = files.read_json(path)
    entries = stored.get("variables") if isinstance(stored, dict) else None
    if not isinstance(entries, list):
        return None
    return {
        one["name"]: one["value"]
        for one in entries
        if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str)
    }


_ATTEMPT = re.compile(ATTEMPT_NAME)


def recover_files(folder: Path) -> tuple[Recovered, ...]:
    """Merge back everything under `folder` that is in this host's fallback folder, and list it in recovered.json of each attempt.

    Never raises OSError: on a disk that still fails, everything stays in the fallback folder for the next call."""
    found: list[Recovered] = []

    def record(now: list[Recovered]) -> None:
        found.extend(now)
        for home, own in _by_home(folder, now).items():
            if own:
                _write_recovered(home, own)

    with contextlib.suppress(OSError):
        merge_fallback(folder, record)
    return tuple(sorted(found, key=lambda one: (one.file, one.t)))


def recovered_cautions(folder: Path) -> tuple[Caution, ...]:
    """One caution for each file in recovered.json of this very folder."""
    subject = folder.parent.name if _ATTEMPT.fullmatch(folder.name) else ""
    return tuple(_recovered_caution(one, subject) for one in _read_recovered(folder) if not _is_outdated(one))


def _by_home(folder: Path, found: Iterable[Recovered]) -> dict[Path, list[Recovered]]:
    """Files by the attempt they belong to, where a reader of the attempt looks."""
    homes: dict[Path, list[Recovered]] = {}
    for one in found:
        if one.foreign:
            # It names another campaign's attempt: no folder is created for it, and the campaign reports it, not each attempt.
            homes.setdefault(folder, []).extend([one] if not _ATTEMPT.fullmatch(folder.name) else [])
            continue
        parts = PurePath(one.file).parts
        depth = next((index + 1 for index, part in enumerate(parts[:-1]) if _ATTEMPT.fullmatch(part)), 0)
        home = folder.joinpath(*parts[:depth])
        homes.setdefault(home, []).append(replace(one, file=str(PurePath(*parts[depth:]))))
    return homes


def _write_recovered(home: Path, found: Iterable[Recovered]) -> None:
    known = {(one.file, one.t): one for one in (*_read_recovered(home), *found)}
    kept = sorted((one for one in known.values() if not _is_outdated(one)), key=lambda one: (one.file, one.t))
    files.write_json(AttemptPaths(home).recovered, to_json(kept))


def _read_recovered(home: Path) -> list[Recovered]:
    stored = files.read_json(AttemptPaths(home).recovered)
    read = [from_json_or_none(Recovered, one) for one in stored] if isinstance(stored, list) else []
    return [one for one in read if one is not None]


def _is_outdated(one: Recovered) -> bool:
    """Whether it is a whole file that is gone since a newer one was written in its place, or another campaign's that was removed."""
    is_removable = one.foreign or one.kept_at.endswith(".whole")
    return not one.merged and is_removable and not _is_on_other_host(one) and not os.path.lexists(one.kept_at)


def _is_on_other_host(one: Recovered) -> bool:
    return one.host != os.uname().nodename


def _recovered_caution(one: Recovered, subject: str) -> Caution:
    if one.foreign:
        where = f"{one.kept_at} on {one.host}"
        text = f"{one.file}: {one.bytes:,} bytes in {where} were left alone: {one.why}. Remove that file if it is not needed."
        return Caution(kind="kept_elsewhere", subject=subject, text=text, numbers={"bytes": one.bytes, "merged": 0})
    text = f"{one.file}: {one.bytes:,} bytes were written to the fallback folder while the disk failed ({one.error})"
    if one.merged:
        text += " and merged back."
    elif _is_on_other_host(one) or os.path.lexists(one.kept_at):
        text += f" and could not be merged back yet ({one.why}). They are in {one.kept_at} on {one.host}, after a header line."
    else:
        text += f" in {one.kept_at}, which is gone: it was removed, or the host was restarted."
    return Caution(kind="kept_elsewhere", subject=subject, text=text, numbers={"bytes": one.bytes, "merged": int(one.merged)})
