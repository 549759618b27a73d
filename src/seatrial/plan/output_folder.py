"""Where a campaign writes: the folder that the command line or the plan names, in full, and fit to be one.

In: a plan, `--out`, the folder the command was started in. Out: an absolute path; nothing is made or looked at here.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from seatrial.errors import PlanError
from seatrial.plan.placeholders import fill
from seatrial.plan.plain_text import wrong_character
from seatrial.plan.schema import Plan

# What Linux takes for one name, and for a whole path with its end.
LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 4095
# A run's folder, its attempt's, and the longest file name in it while that is still being written.
ROOM_BYTES = 256


def output_folder(plan: Plan, asked: Path | None, cwd: Path, now: datetime | None = None) -> Path:
    """The campaign's folder; `asked` is the command line's and wins over the plan."""
    stamp = (now or datetime.now()).strftime("%Y%m%d_%H%M%S")
    text = str(asked).replace("{time}", stamp) if asked is not None else fill(plan.output or f"outputs/{plan.name}", {"time": stamp})
    problem = wrong_character(text) or _line_break_in(text)
    if problem:
        raise _error(plan, asked, problem)
    try:
        folder = cwd / Path(text).expanduser()
    except RuntimeError as error:
        raise _error(plan, asked, f"{text} cannot be found: nobody's home folder is known by that name; write the whole path") from error
    problem = _length_problem(folder)
    if problem:
        raise _error(plan, asked, problem)
    return folder


def _line_break_in(text: str) -> str | None:
    return "holds a line break or a tab; name a folder without" if set(text) & set("\n\t") else None


def _length_problem(folder: Path) -> str | None:
    names = [len(os.fsencode(part)) for part in folder.parts]
    if max(names) > LONGEST_NAME_BYTES:
        return f"one of its names has {max(names)} bytes, more than the {LONGEST_NAME_BYTES} a file system takes; name it shorter"
    whole = len(os.fsencode(folder))
    if whole + ROOM_BYTES > LONGEST_PATH_BYTES:
        return f"the path has {whole} bytes, which leaves too little of the {LONGEST_PATH_BYTES} for the files in it; choose a shorter one"
    return None


def _error(plan: Plan, asked: Path | None, problem: str) -> PlanError:
    return plan.locations.error(("output",), problem) if asked is None else PlanError(problem, key="--out")
