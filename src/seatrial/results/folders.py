"""Folders of campaigns and runs, ours or of the original stage-1 scripts.

In: the folder of a campaign or a run. Out: the same, or its translation under FOLDER/seatrial, which is created or updated; the attempts of
a run.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.collect.original.runs import is_original
from seatrial.collect.original.translate import translate
from seatrial.core.errors import CampaignError, did_you_mean
from seatrial.core.paths import ANY_ATTEMPT, AttemptPaths, CampaignPaths, OriginalPaths, RunPaths
from seatrial.core.text import join_names

MAX_NAMED = 8


def find_campaign(folder: Path) -> Path:
    """The campaign to read; `folder` itself unless it is of the original scripts."""
    original = _original_behind(folder)
    if original is None:
        return folder
    try:
        return translate(original)
    except OSError as error:
        target = OriginalPaths(original).translated
        raise CampaignError(
            f"{error.filename or original}: {error.strerror}; the translation of {original} goes into {target}: fix that, or copy the "
            "folder elsewhere"
        ) from error


def find_run(folder: Path) -> Path:
    """The run to read; `folder` itself unless it is of the original scripts."""
    if RunPaths(folder).attempts() or not is_original(folder.parent):
        return folder
    return find_campaign(folder.parent) / folder.name


def _original_behind(folder: Path) -> Path | None:
    """The original folder: `folder` itself, or the one above it where `folder` is a translation."""
    if is_original(folder):
        return folder
    above = folder.resolve().parent
    if CampaignPaths(folder).translation.is_file() and OriginalPaths(above).translated == folder.resolve() and is_original(above):
        return above
    return None


def find_attempts(run: Path) -> list[AttemptPaths]:
    """Every attempt of a run's folder, oldest first; a CampaignError with the nearest run where it holds none."""
    attempts = RunPaths(run).attempts()
    if attempts:
        return attempts
    inside = sorted({child.parent.name for child in run.glob(f"*/{ANY_ATTEMPT}")})
    if inside:
        raise CampaignError(f"{run} is a campaign; name one of its runs: {join_names(inside, MAX_NAMED)}")
    siblings = [child.name for child in run.parent.glob("*") if any(child.glob(ANY_ATTEMPT))] if run.parent.is_dir() else []
    raise CampaignError(f"{run} holds no run: {did_you_mean(run.name, siblings)}")
