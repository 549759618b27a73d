"""The campaign behind a folder that somebody names, whoever wrote it.

In: a campaign's folder, one that the original stage-1 scripts wrote, or a run's folder in either. Out: the folder of a campaign of ours
(or of the run in it): the same, or the translation under FOLDER/seatrial, made or brought up to date on the way.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.collect.original.sources import is_original
from seatrial.collect.original.translate import translate
from seatrial.errors import CampaignError
from seatrial.paths import CampaignPaths, OriginalPaths, RunPaths


def campaign_of(folder: Path) -> Path:
    """The campaign to read; `folder` itself where it is one of ours, or none at all."""
    original = _behind(folder)
    if original is None:
        return folder
    try:
        return translate(original)
    except OSError as error:
        goes_to = OriginalPaths(original).translated
        raise CampaignError(
            f"{error.filename or original}: {error.strerror}; the campaign made of {original} goes into {goes_to}: mend that, or copy the "
            "folder to a place of your own"
        ) from error


def run_of(folder: Path) -> Path:
    """The run to read; `folder` itself where it is one of ours, or none at all."""
    if RunPaths(folder).attempts() or not is_original(folder.parent):
        return folder
    return campaign_of(folder.parent) / folder.name


def _behind(folder: Path) -> Path | None:
    """The original folder: the one that is named, or the one above a translation that is named itself."""
    if is_original(folder):
        return folder
    above = folder.resolve().parent
    if CampaignPaths(folder).translation.is_file() and OriginalPaths(above).translated == folder.resolve() and is_original(above):
        return above
    return None
