"""translation.json: of which folder a campaign was made, from which files, and what of them could not be used.

Read by everything that reports such a campaign, written last, so that one that was cut short is made anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.codec import described, to_json

VERSION = 2
"""Counted up with every change of what is written: folders translated before are then translated anew."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """translation.json."""

    version: int = VERSION
    source: str
    """The original folder, absolute."""
    files: dict[str, str] = field(default_factory=dict)
    """What was read, with size and time of change."""
    runs: dict[str, int] = field(default_factory=dict)
    """How many attempts were written of each run."""
    cautions: tuple[Caution, ...] = ()


def read_translation(paths: CampaignPaths) -> Translation | None:
    """None for a campaign that was run, and for one whose translation was cut short."""
    return described(Translation, files.read_json(paths.translation))


def write_translation(paths: CampaignPaths, translation: Translation) -> None:
    files.write_json(paths.translation, to_json(translation))


def translation_cautions(paths: CampaignPaths) -> tuple[Caution, ...]:
    """What to say of a campaign that was translated; () for any other."""
    found = read_translation(paths)
    return found.cautions if found else ()
