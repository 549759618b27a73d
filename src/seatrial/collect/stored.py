"""One record as it lies on disk, or why it cannot be used.

In: the path of a JSON file of the project. Out: the record and "", or None and the reason; None and "" where there is no such file.
A record that is whole and yet cannot be true (of another run, a time before time began) is as good as a damaged one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from seatrial import files
from seatrial.paths import AttemptPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.codec import from_json
from seatrial.records.nodes import NodesRecord
from seatrial.records.outcome import RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.records.telemetry import TelemetryAccount

Record = TypeVar("Record")

LONGEST_REASON = 120
LATEST_T = 2.0**33
"""Wall clock of the year 2242."""
LONGEST_RUN_S = 10 * 366 * 86400.0
MOST_RANKS = 10**6
IMPOSSIBLE = "it holds a number that cannot be"
PLANS = "plans"


def read_record(kind: type[Record], path: Path) -> tuple[Record | None, str]:
    """The record, and why there is none where there is such a file."""
    if not os.path.lexists(path):
        return None, ""
    value = files.read_json(path)
    if value is None:
        return None, "it cannot be read, or is not whole"
    try:
        return from_json(kind, value), ""
    except (ValueError, RecursionError) as error:
        return None, str(error)[:LONGEST_REASON]


def read_spec(paths: AttemptPaths) -> tuple[RunSpec | None, str]:
    """The attempt's own spec.json."""
    spec, why = read_record(RunSpec, paths.spec)
    if spec is None:
        return None, why or "it is missing"
    if spec.run != paths.run:
        return None, f"it is that of the run {spec.run[:LONGEST_REASON]}"
    return (spec, "") if _can_be(spec) else (None, IMPOSSIBLE)


def read_plan(path: Path) -> tuple[CampaignPlan | None, str]:
    """plan.json, or a plan under its name in plans/."""
    plan, why = read_record(CampaignPlan, path)
    if plan is None:
        return None, why
    if path.parent.name == PLANS and plan.name != path.stem:
        return None, f"it is the plan '{plan.name[:LONGEST_REASON]}'"
    return (plan, "") if plan.repeats >= 1 and all(map(_can_be, plan.runs)) else (None, IMPOSSIBLE)


def same_text(one: Path, other: Path) -> bool:
    """Whether two files hold the very same; False where one of them cannot be read."""
    try:
        with files.open_file(one) as first, files.open_file(other) as second:
            return os.fstat(first.fileno()).st_size == os.fstat(second.fileno()).st_size and first.read() == second.read()
    except OSError:
        return False


def _can_be(spec: RunSpec) -> bool:
    counts = (spec.place.ranks, spec.timing.log_every, spec.timing.timing_window, spec.timing.tail_points)
    return min(counts) >= 1 and spec.place.ranks <= MOST_RANKS and (spec.steps or 0) >= 0


def read_account(paths: AttemptPaths) -> tuple[TelemetryAccount | None, str]:
    """The samplers' own account, telemetry.json."""
    account, why = read_record(TelemetryAccount, paths.telemetry)
    told = [sampler for sampler in (account.gpu, account.host) if sampler] if account else []
    numbers = [(one.interval_s, one.rows, one.samples, one.invalid, one.gaps, one.longest_gap_s, one.cpu_s, one.wall_s) for one in told]
    return (account, why) if all(min(each) >= 0 for each in numbers) else (None, IMPOSSIBLE)


def read_nodes(paths: AttemptPaths) -> tuple[NodesRecord | None, str]:
    """The hosts of an attempt on many."""
    record, why = read_record(NodesRecord, paths.nodes_record)
    if record is None:
        return None, why
    shares = [(node.node_rank, node.first_rank, node.ranks, node.killed) for node in record.nodes]
    clocks = [value for node in record.nodes for value in (node.clock_offset_s, node.clock_round_trip_s) if value is not None]
    can_be = all(min(share) >= 0 and max(share) <= MOST_RANKS for share in shares) and all(abs(value) <= LATEST_T for value in clocks)
    return (record, "") if can_be else (None, IMPOSSIBLE)


def read_outcome(paths: AttemptPaths, hash: str | None = None) -> tuple[RunOutcome | None, str]:
    """The attempt's own outcome.json; with `hash`, only that of this very spec."""
    outcome, why = read_record(RunOutcome, paths.outcome)
    if outcome is None:
        return None, why
    if (outcome.run, outcome.attempt) != (paths.run, paths.number):
        return None, f"it is that of attempt {outcome.attempt} of the run {outcome.run[:LONGEST_REASON]}"
    # One that was written for an attempt without a readable spec has none.
    if hash is not None and outcome.hash not in ("", hash):
        return None, "it is that of a run with other settings"
    times = (outcome.started_t, outcome.ended_t)
    if not (min(times) >= 0 and max(times) <= LATEST_T and 0 <= outcome.duration_s <= LONGEST_RUN_S and outcome.killed >= 0):
        return None, IMPOSSIBLE
    return outcome, ""


def unusable(path: Path, why: str, subject: str = "", then: str = "run the run again, or put the file back from a copy") -> Caution:
    """What to say of a file that was passed over."""
    return Caution(kind="unreadable_file", subject=subject, text=f"{path} cannot be used ({why}) and was passed over; {then}.")
