"""What `run` and `sweep` refuse before anything is made or started: more runs than are meant, an output that cannot be a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.errors import UsageError

if TYPE_CHECKING:
    from seatrial.records.campaign_plan import CampaignPlan

# A night of one-minute runs has half as many; beyond this it is more often a slip in the axes.
RUNS_WITHOUT_ASKING = 1_000


def refuse_unasked(plan: CampaignPlan, yes: bool) -> None:
    """Raise where there are so many runs that `--yes` must say they are meant."""
    from seatrial.plan.matrix import sizes_text

    runs = len(plan.chosen)
    if runs > RUNS_WITHOUT_ASKING and not yes:
        sizes = sizes_text({name: len(values) for name, values in plan.axes.items()}, plan.repeats)
        raise UsageError(
            f"{runs:,} runs are asked for ({sizes}): add --yes if that is meant, choose some with --only, or take values or repeats away"
        )


def refuse_unusable_output(folder: Path) -> None:
    """Raise where the output folder is not there and cannot be made, cannot be written to, or holds what must not be written over."""
    from seatrial.collect.original.sources import is_original

    problem = _problem_of(folder)
    if not problem and is_original(folder):
        problem = f"was written by the original stage-1 scripts and stays as it is (`seatrial report {folder}` reads it)"
    if problem:
        raise UsageError(f"the output folder {folder} {problem}; choose another with --out")


def _problem_of(folder: Path) -> str | None:
    """What is wrong with the folder, or with the nearest one above it that is there."""
    for place in (folder, *folder.parents):
        try:
            mode = place.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if place.is_symlink():
                return f"cannot be made: {place} is a link to {place.readlink()}, which is not there"
            continue
        except OSError as error:
            return f"cannot be used: {place}: {error.strerror}"
        above = "" if place == folder else f"cannot be made: {place} "
        if not stat.S_ISDIR(mode):
            return f"{above}is a file and no folder"
        return None if os.access(place, os.W_OK | os.X_OK) else f"{above}cannot be written to: mend its permissions, or its mount"
    return None
