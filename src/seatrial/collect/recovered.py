"""What a bad disk did not take and was kept elsewhere: put back where it belongs, written down, and told.

In: the folder of an attempt or of a whole campaign. Out: the files as they should be (as far as the disk is well again), `recovered.json`
in the folder of the attempt or campaign whose files they are, and a caution for each.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePath

from seatrial import files
from seatrial.disk.merging import Recovered, merge_back
from seatrial.paths import ATTEMPT_NAME, AttemptPaths
from seatrial.records.caution import Caution
from seatrial.records.codec import described, to_json

_ATTEMPT = re.compile(ATTEMPT_NAME)


def recover(folder: Path) -> tuple[Recovered, ...]:
    """Put back everything under `folder` that was kept elsewhere on this host, and write down what that was.

    Never raises OSError: on a disk that is still bad, all of it stays where it is and is tried again by the next call."""
    found: list[Recovered] = []

    def told(now: list[Recovered]) -> None:
        found.extend(now)
        for home, own in _by_home(folder, now).items():
            _write_down(home, own)

    with contextlib.suppress(OSError):
        merge_back(folder, told)
    return tuple(sorted(found, key=lambda one: (one.file, one.t)))


def recovered_cautions(folder: Path) -> tuple[Caution, ...]:
    """One caution for each file that recovered.json in this very folder speaks of."""
    subject = folder.parent.name if _ATTEMPT.fullmatch(folder.name) else ""
    return tuple(_caution(one, subject) for one in _stored(folder) if not _is_out_of_date(one))


def _by_home(folder: Path, found: Iterable[Recovered]) -> dict[Path, list[Recovered]]:
    """Each under the attempt that it belongs to, since that is where a reader of the attempt looks."""
    homes: dict[Path, list[Recovered]] = {}
    for one in found:
        parts = PurePath(one.file).parts
        depth = next((at + 1 for at, part in enumerate(parts[:-1]) if _ATTEMPT.fullmatch(part)), 0)
        home = folder.joinpath(*parts[:depth])
        homes.setdefault(home, []).append(replace(one, file=str(PurePath(*parts[depth:]))))
    return homes


def _write_down(home: Path, found: Iterable[Recovered]) -> None:
    known = {(one.file, one.t): one for one in _stored(home)}
    known |= {(one.file, one.t): one for one in found}
    kept = sorted((one for one in known.values() if not _is_out_of_date(one)), key=lambda one: (one.file, one.t))
    files.write_json(AttemptPaths(home).recovered, to_json(kept))


def _stored(home: Path) -> list[Recovered]:
    stored = files.read_json(AttemptPaths(home).recovered)
    read = [described(Recovered, one) for one in stored] if isinstance(stored, list) else []
    return [one for one in read if one is not None]


def _is_out_of_date(one: Recovered) -> bool:
    """A whole file that was kept and is gone: a newer one was written in its place meanwhile."""
    return not one.merged and one.kept_at.endswith(".whole") and not _is_elsewhere(one) and not os.path.lexists(one.kept_at)


def _is_elsewhere(one: Recovered) -> bool:
    return one.host != os.uname().nodename


def _caution(one: Recovered, subject: str) -> Caution:
    kept = f"{one.file}: {one.bytes:,} bytes were kept elsewhere while the disk failed ({one.error})"
    if one.merged:
        text = f"{kept} and merged back."
    elif _is_elsewhere(one) or os.path.lexists(one.kept_at):
        text = (
            f"{kept} and could not be merged back yet ({one.why}); they lie in {one.kept_at} on {one.host}, after a first line about them."
        )
    else:
        text = f"{kept} in {one.kept_at}, where they are no longer: somebody removed them, or the host was started anew."
    return Caution(kind="kept_elsewhere", subject=subject, text=text, numbers={"bytes": one.bytes, "merged": int(one.merged)})
