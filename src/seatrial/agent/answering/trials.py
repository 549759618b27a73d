"""Small files in a folder that is to be shared, to see whether it is: put, looked for from elsewhere, replaced, locked, and removed.

Names begin with TRIAL_PREFIX and have no slash, so nothing else in the folder can be touched. What was put is removed by `close`, or
when the answerer ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.agent.answering.at_once import words_of
from seatrial.disk.modes import PRIVATE
from seatrial.machine.patience import looked_for
from seatrial.paths import TRIAL_PREFIX

# A file server may show others' work a moment later.
LOOK_FOR_S = 2.0
LOOK_AGAIN_S = 0.05
LONGEST_TEXT = 4096


class Trials:
    """The files this process has put somewhere, and the locks it holds."""

    def __init__(self) -> None:
        self._put: set[Path] = set()
        self._locked: list[int] = []

    def put(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Write `text` aside and rename it onto `name` in `folder`, in place of what is there."""
        path = _trial(question)
        aside = path.with_name(f"{path.name}.part")
        self._put |= {path, aside}
        act = "written"
        try:
            with open(aside, "w", encoding="utf-8") as file:
                file.write(str(question.get("text", ""))[:LONGEST_TEXT])
                file.flush()
                os.fsync(file.fileno())
            act = "renamed"
            os.replace(aside, path)
        except OSError as error:
            return {"trouble": f"in {path.parent} no file can be {act}: {words_of(error)}", "act": act}
        return {}

    def lock(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Hold a lock on `name` until `close`."""
        path = _trial(question)
        self._put.add(path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        self._locked.append(handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return {}

    def close(self) -> None:
        for handle in self._locked:
            with contextlib.suppress(OSError):
                os.close(handle)
        for path in self._put:
            with contextlib.suppress(OSError):
                path.unlink()
        self._locked.clear()
        self._put.clear()


def look(question: Mapping[str, Any]) -> dict[str, Any]:
    """`troubles` of those of `wanted` (name → text) that are not there with that text, also not after a moment."""
    folder, wanted = Path(str(question["folder"])), {str(name): text for name, text in question.get("wanted", {}).items()}
    return {"troubles": looked_for(lambda: _troubles(folder, wanted), operator.not_, LOOK_FOR_S, LOOK_AGAIN_S)}


def _troubles(folder: Path, wanted: Mapping[str, Any]) -> dict[str, str]:
    return {name: trouble for name, text in wanted.items() if (trouble := _differs(_named(folder, name), text))}


def _differs(path: Path, text: object) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = file.read(LONGEST_TEXT)
    except OSError as error:
        return words_of(error)
    allowed = text if isinstance(text, list) else [text]
    return "" if found in allowed else "an older text is seen there" if found else "an empty file is seen there"


def is_held(question: Mapping[str, Any]) -> dict[str, Any]:
    """Whether somebody holds a lock on `name`."""
    handle = os.open(_trial(question), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return {"held": True}
    finally:
        os.close(handle)
    return {"held": False}


def _trial(question: Mapping[str, Any]) -> Path:
    return _named(Path(str(question["folder"])), str(question["name"]))


def _named(folder: Path, name: str) -> Path:
    if not name.startswith(TRIAL_PREFIX) or "/" in name or not folder.is_absolute():
        raise ValueError(f"{name!r} is no file of a trial")
    return folder / name
