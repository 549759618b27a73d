"""Records read back from a campaign's folder; any file may be missing, truncated, huge, damaged or of another attempt.

In: paths. Out: records that passed their checks, or the reason they cannot be used; the folders of an attempt's hosts. All stages
read outcomes, specs and plans from disk here, so that none accepts what another rejects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from seatrial.core import files
from seatrial.core.paths import AttemptPaths, RunPaths
from seatrial.records.codec import from_json, from_json_or_none
from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.outcome import Resumption, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.telemetry import TelemetryAccount

Record = TypeVar("Record")
Stored = TypeVar("Stored")

LONGEST_REASON = 120
LATEST_T = 2.0**33
"""Latest plausible wall clock, in the year 2242."""
LONGEST_RUN_S = 10 * 366 * 86400.0
MAX_RANKS = 10**6
OUT_OF_RANGE = "a number in it is out of range"
MISSING = "it is missing"
PLANS = "plans"


def read_record(kind: type[Record], path: Path) -> tuple[Record | None, str]:
    """The record and "", or None and the reason; None and "" where there is no such file."""
    if not os.path.lexists(path):
        return None, ""
    value, why = files.read_json_or_why(path)
    if value is None:
        return None, why or files.UNREADABLE
    try:
        return from_json(kind, value), ""
    except (ValueError, RecursionError) as error:
        return None, str(error)[:LONGEST_REASON]


def read_spec(paths: AttemptPaths) -> tuple[RunSpec | None, str]:
    spec, why = read_record(RunSpec, paths.spec)
    if spec is None:
        return None, why or MISSING
    if spec.run != paths.run:
        return None, f"it belongs to the run {spec.run[:LONGEST_REASON]}"
    return (spec, "") if _is_plausible(spec) else (None, OUT_OF_RANGE)


def read_plan(path: Path) -> tuple[CampaignPlan | None, str]:
    """plan.json, or a plan under its name in plans/."""
    plan, why = read_record(CampaignPlan, path)
    if plan is None:
        return None, why
    if path.parent.name == PLANS and plan.name != path.stem:
        return None, f"it is the plan '{plan.name[:LONGEST_REASON]}'"
    return (plan, "") if plan.repeats >= 1 and all(map(_is_plausible, plan.runs)) else (None, OUT_OF_RANGE)


def _is_plausible(spec: RunSpec) -> bool:
    counts = (spec.place.ranks, spec.timing.log_every, spec.timing.timing_window, spec.timing.tail_points)
    return min(counts) >= 1 and spec.place.ranks <= MAX_RANKS and (spec.steps or 0) >= 0


def read_telemetry_account(paths: AttemptPaths) -> tuple[TelemetryAccount | None, str]:
    """telemetry.json, which the samplers write at their end."""
    account, why = read_record(TelemetryAccount, paths.telemetry)
    samplers = [sampler for sampler in (account.gpu, account.host) if sampler] if account else []
    numbers = [(one.interval_s, one.rows, one.samples, one.invalid, one.gaps, one.longest_gap_s, one.cpu_s, one.wall_s) for one in samplers]
    return (account, why) if all(min(each) >= 0 for each in numbers) else (None, OUT_OF_RANGE)


def read_nodes(paths: AttemptPaths) -> tuple[NodesRecord | None, str]:
    record, why = read_record(NodesRecord, paths.nodes_record)
    if record is None:
        return None, why
    shares = [(node.node_rank, node.first_rank, node.ranks, node.killed) for node in record.nodes]
    clocks = [value for node in record.nodes for value in (node.clock_offset_s, node.clock_round_trip_s) if value is not None]
    in_range = all(min(share) >= 0 and max(share) <= MAX_RANKS for share in shares) and all(abs(value) <= LATEST_T for value in clocks)
    return (record, "") if in_range else (None, OUT_OF_RANGE)


def read_outcome(paths: AttemptPaths, hash: str | None = None) -> tuple[RunOutcome | None, str]:
    """outcome.json of the attempt; with `hash`, only if it was written for that spec."""
    outcome, why = read_record(RunOutcome, paths.outcome)
    if outcome is None:
        return None, why
    if (outcome.run, outcome.attempt) != (paths.run, paths.number):
        return None, f"it belongs to attempt {outcome.attempt} of the run {outcome.run[:LONGEST_REASON]}"
    # An attempt without a readable spec has an outcome without a hash.
    if hash is not None and outcome.hash not in ("", hash):
        return None, "it belongs to a run with other settings"
    times = (outcome.started_t, outcome.ended_t)
    if not (min(times) >= 0 and max(times) <= LATEST_T and 0 <= outcome.duration_s <= LONGEST_RUN_S and outcome.killed >= 0):
        return None, OUT_OF_RANGE
    return outcome, ""


def accepted_outcome(attempt: AttemptPaths) -> RunOutcome | None:
    """The outcome that a report accepts: of this attempt, and written for its spec."""
    # Loops poll for it; without one the spec need not be read. An unreadable folder is no error here, as for every other record.
    return read_outcome(attempt, stored_hash(attempt))[0] if os.path.lexists(attempt.outcome) else None


def counting_attempt(same: Sequence[Stored], outcome_of: Callable[[Stored], RunOutcome | None]) -> Stored:
    """Of the attempts of a run with one hash, oldest first, the one that counts: the last that came to its own end, well or badly,
    else the last. An interrupted attempt does not hide an older result."""
    ended = [one for one in same if (outcome := outcome_of(one)) and not outcome.outcome.is_cut_short]
    return (ended or same)[-1]


def read_resumption(attempt: AttemptPaths) -> Resumption | None:
    """Where the attempt started; None for an ordinary start at step 0."""
    return from_json_or_none(Resumption, files.read_json(attempt.resume))


def earlier_attempts(attempt: AttemptPaths) -> list[AttemptPaths]:
    """The attempts of the same training before this one, oldest first, with those whose steps were lost; none after a start at 0."""
    run, first = RunPaths(attempt.folder.parent), attempt
    hashes = {stored_hash(attempt)}
    # A link that leads nowhere, or forward, is damaged.
    while (resumption := read_resumption(first)) and (source := resumption.from_attempt) is not None and 0 < source < first.number:
        first = run.attempt(source)
        # It may have had fewer steps, or other settings.
        hashes.add(stored_hash(first))
    return [one for one in run.attempts() if first.number <= one.number < attempt.number and stored_hash(one) in hashes]


def stored_hash(attempt: AttemptPaths) -> str | None:
    """The hash in spec.json, also of one that is no longer plausible; None where there is none."""
    spec = files.read_json(attempt.spec)
    return spec.get("hash") if isinstance(spec, dict) else None


class HostFolder(NamedTuple):
    """Where the files of one host are."""

    name: str
    """Its name in the hostfile; empty for a run on one host."""
    paths: AttemptPaths
    offset_s: float = 0.0
    """How far its clock was ahead of the harness's; 0 if not measured."""


def host_folders(attempt: AttemptPaths, nodes: NodesRecord | None) -> list[HostFolder]:
    """Folders of all hosts. Node 0 comes first and its files are in the attempt's own folder, those of the others in nodes/<name>/.

    A run on one host has one folder without a name. Without nodes.json the folders below nodes/ show who was there."""
    if nodes is None or len(nodes.nodes) == 0:
        return list(_folders_without_record(attempt))
    valid = [node for node in sorted(nodes.nodes, key=lambda node: node.node_rank) if _is_folder_name(node.name)]
    return [
        HostFolder(name=node.name, paths=attempt.node(node.name) if node.node_rank else attempt, offset_s=node.clock_offset_s or 0.0)
        for node in valid
    ]


def _folders_without_record(attempt: AttemptPaths) -> Iterator[HostFolder]:
    """Folders by what is on disk: the one without a launcher.log of its own is node 0's."""
    names = node_names(attempt)
    with_log = [name for name in names if attempt.node(name).launcher_log.is_file()]
    first = [name for name in names if name not in with_log]
    yield HostFolder(name=first[0] if len(first) == 1 else "head" if names else "", paths=attempt)
    yield from (HostFolder(name=name, paths=attempt.node(name)) for name in with_log)


def node_names(attempt: AttemptPaths) -> list[str]:
    """The folders below nodes/; [] where there are none."""
    try:
        with os.scandir(attempt.nodes) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _is_folder_name(name: str) -> bool:
    """Whether it is a plain name: a damaged record must not lead out of the attempt."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


def node_of_rank(nodes: NodesRecord | None, rank: int) -> NodeRecord | None:
    """The host a rank ran on; None where that is not recorded."""
    found = nodes.nodes if nodes is not None else ()
    return next((node for node in found if node.first_rank <= rank < node.first_rank + node.ranks), None)


def clock_offset_s(nodes: NodesRecord | None, rank: int) -> float:
    """How far the clock of a rank's host was ahead of the harness's; 0 where that is unknown."""
    node = node_of_rank(nodes, rank)
    return node.clock_offset_s or 0.0 if node is not None else 0.0
