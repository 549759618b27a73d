"""Finding the attempts behind the folder somebody typed, or saying what they may have meant."""

from __future__ import annotations

from pathlib import Path

from seatrial.errors import CampaignError, did_you_mean
from seatrial.paths import ANY_ATTEMPT, AttemptPaths, RunPaths
from seatrial.wording import named

MOST_NAMED = 8


def attempts_of(run: Path) -> list[AttemptPaths]:
    """Every attempt of a run's folder, oldest first; a CampaignError that names the nearest run when it is none."""
    attempts = RunPaths(run).attempts()
    if attempts:
        return attempts
    inside = sorted({child.parent.name for child in run.glob(f"*/{ANY_ATTEMPT}")})
    if inside:
        raise CampaignError(f"{run} is a campaign; name one of its runs: {named(inside, MOST_NAMED)}")
    siblings = [child.name for child in run.parent.glob("*") if any(child.glob(ANY_ATTEMPT))] if run.parent.is_dir() else []
    raise CampaignError(f"{run} holds no run: {did_you_mean(run.name, siblings)}")
