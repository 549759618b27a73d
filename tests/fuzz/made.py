"""Attempts and a campaign whose files are replaced by whatever bytes come."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from tests.fuzz import scratch
from tests.unit.analyse import factory
from tests.unit.campaign.made_campaign import write_campaign
from tests.unit.collect.on_disk import write_attempt


@cache
def attempt(name: str, patterns: tuple[str, ...] = ()) -> Attempt:
    """An attempt that ended well; each target has one of its own."""
    return write_attempt(scratch.folder() / name, factory.spec(ranks=2, workload={"patterns": patterns}))


def paths_of(one: Attempt) -> AttemptPaths:
    return AttemptPaths(Path(one.folder))


@cache
def campaign() -> Path:
    """A whole small campaign."""
    return write_campaign(scratch.folder() / "campaign").folder
