"""A run as one side of `seatrial diff`, and of the page of two campaigns.

In: a run's folder, or one attempt of it, ours or of the original scripts. Out: what differs can be told from: the attempt, what its ranks
said they used, and the variables it was started with.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.campaign.original import run_of
from seatrial.campaign.run_folder import attempts_of
from seatrial.collect.attempts import ended, read_attempt
from seatrial.collect.environment import read_variables
from seatrial.collect.events.effective import read_effective
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.report.run_diff import RunSide


def run_side(folder: Path) -> RunSide:
    """A run as `diff_runs` takes it: of several attempts the newest that came to its own end."""
    attempt = _attempt(folder)
    paths = AttemptPaths(Path(attempt.folder))
    return RunSide(
        attempt=attempt,
        effective=read_effective(paths.events(0), attempt),
        environment=read_variables(paths.environment) or {},
    )


def _attempt(folder: Path) -> Attempt:
    # `.` and `..` have no name of their own.
    one = AttemptPaths(run_of(folder if folder.name.strip(".") else folder.resolve()))
    wanted = [one] if one.number and one.folder.is_dir() else attempts_of(one.folder)
    readable = [attempt for paths in wanted if (attempt := read_attempt(paths))]
    if not readable:
        raise CampaignError(f"{folder} has no spec.json that can be read: it was never started, or is not what Seatrial writes")
    return next((attempt for attempt in reversed(readable) if ended(attempt)), readable[-1])
