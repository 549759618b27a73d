"""Files of an attempt, any of which may be missing, truncated, huge or damaged.

In: paths. Out: JSON records that passed their checks, or the reason they cannot be used; the folders of the attempt's hosts; files merged
back after a disk failure.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

from seatrial.core import files
from seatrial.core.checkpoints import find_checkpoints
from seatrial.core.fallback import Recovered, merge_fallback
from seatrial.core.paths import ATTEMPT_NAME, AttemptPaths, RunPaths
from seatrial.records.caution import Caution
from seatrial.records.codec import from_json, from_json_or_none, to_json
from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.outcome import Resumption, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.telemetry import TelemetryAccount

LAST_LINES = 50
"""Of a rank's events: its last steps are among them."""


def longest_non_decreasing(values: Sequence[float]) -> list[int]:
    """Indices of the longest non-decreasing subsequence: one clock reading that is far too high must not discredit all that follow."""
    lowest_end: list[float] = []
    ends_at: list[int] = []
    previous: list[int] = []
    for index, value in enumerate(values):
        length = bisect.bisect_right(lowest_end, value)
        previous.append(ends_at[length - 1] if length else -1)
        lowest_end[length : length + 1], ends_at[length : length + 1] = [value], [index]
    indices = []
    index = ends_at[-1] if ends_at else -1
    while index >= 0:
        indices.append(index)
        index = previous[index]
    return indices[::-1]


Record = TypeVar("Record")

LONGEST_REASON = 120
LATEST_T = 2.0**33
"""Wall clock of the year 2242."""
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


def have_same_content(one: Path, other: Path) -> bool:
    """False where one of them cannot be read."""
    try:
        with files.open_file(one) as first, files.open_file(other) as second:
            return os.fstat(first.fileno()).st_size == os.fstat(second.fileno()).st_size and first.read() == second.read()
    except OSError:
        return False


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


def read_resumption(attempt: AttemptPaths) -> Resumption | None:
    """Where the attempt started; None for an ordinary start at step 0."""
    return from_json_or_none(Resumption, files.read_json(attempt.resume))


def earlier_attempts(attempt: AttemptPaths) -> list[AttemptPaths]:
    """The attempts of the same training before this one, oldest first, with those whose steps were lost; none after a start at 0."""
    run, first = RunPaths(attempt.folder.parent), attempt
    hashes = {_stored_hash(attempt)}
    # A link that leads nowhere, or forward, is damaged.
    while (resumption := read_resumption(first)) and (source := resumption.from_attempt) is not None and 0 < source < first.number:
        first = run.attempt(source)
        # It may have had fewer steps, or other settings.
        hashes.add(_stored_hash(first))
    return [one for one in run.attempts() if first.number <= one.number < attempt.number and _stored_hash(one) in hashes]


def _stored_hash(attempt: AttemptPaths) -> str | None:
    spec = files.read_json(attempt.spec)
    return spec.get("hash") if isinstance(spec, dict) else None


class StepSpan(NamedTuple):
    """The first and the last step that an attempt is known to have taken; `last` is `first - 1` where it took none."""

    first: int
    last: int


def read_step_span(attempt: AttemptPaths) -> StepSpan | None:
    """By the events of its lowest rank; where it was killed, with its last lines unwritten, by heartbeats and checkpoints too. None where
    no step is known."""
    first: object = None
    known: list[object] = [checkpoint.step for checkpoint in find_checkpoints(attempt.checkpoints).whole]
    for events in attempt.all_events()[:1]:
        first = next((event.get("step") for event in files.read_json_lines(events) if event.get("kind") == "step"), None)
        known += [event.get("step") for event in files.last_json_lines(events, LAST_LINES) if event.get("kind") == "step"]
    for heartbeats in attempt.all_heartbeats()[:1]:
        known += [heartbeat.get("step") for heartbeat in files.last_json_lines(heartbeats, 2)]
    steps = [step for step in known if isinstance(step, int)]
    start = first if isinstance(first, int) else _planned_start(attempt)
    return StepSpan(start, max(steps)) if steps and start is not None else None


def _planned_start(attempt: AttemptPaths) -> int | None:
    """The first step it was to take; None where only its script knows."""
    resumption = read_resumption(attempt)
    if resumption is None or resumption.from_attempt is None:
        return 0
    return None if resumption.step is None else resumption.step + 1


def unusable_file(path: Path, why: str, subject: str = "", then: str = "run the run again, or restore the file from a copy") -> Caution:
    """The caution about a file that was skipped."""
    return Caution(kind="unreadable_file", subject=subject, text=f"{path} cannot be used ({why}) and was skipped; {then}.")


def read_environment(path: Path) -> dict[str, str] | None:
    """Environment variables of the ranks by environment.json; None without a readable file. Malformed entries are skipped."""
    stored = files.read_json(path)
    entries = stored.get("variables") if isinstance(stored, dict) else None
    if not isinstance(entries, list):
        return None
    return {
        one["name"]: one["value"]
        for one in entries
        if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str)
    }


@dataclass(frozen=True, kw_only=True)
class HostFolder:
    """Where the files of one host are."""

    name: str
    """As in the hostfile; empty for a run on one host."""
    paths: AttemptPaths
    offset_s: float = 0.0
    """How far its clock was ahead of the harness's; 0 where that was not measured."""


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
    """The folder without a launcher.log of its own is node 0's."""
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
    """A damaged record must not lead out of the attempt."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


def node_of_rank(nodes: NodesRecord | None, rank: int) -> NodeRecord | None:
    """The host a rank ran on; None where that is not recorded."""
    found = nodes.nodes if nodes is not None else ()
    return next((node for node in found if node.first_rank <= rank < node.first_rank + node.ranks), None)


def clock_offset_s(nodes: NodesRecord | None, rank: int) -> float:
    """How far the clock of a rank's host was ahead of the harness's; 0 where that is unknown."""
    node = node_of_rank(nodes, rank)
    return node.clock_offset_s or 0.0 if node is not None else 0.0


_ATTEMPT = re.compile(ATTEMPT_NAME)


def recover_files(folder: Path) -> tuple[Recovered, ...]:
    """Merge back everything under `folder` that is in this host's fallback folder, and list it in recovered.json of each attempt.

    Never raises OSError: on a disk that still fails, everything stays in the fallback folder for the next call."""
    found: list[Recovered] = []

    def record(now: list[Recovered]) -> None:
        found.extend(now)
        for home, own in _by_home(folder, now).items():
            if own:
                _write_recovered(home, own)

    with contextlib.suppress(OSError):
        merge_fallback(folder, record)
    return tuple(sorted(found, key=lambda one: (one.file, one.t)))


def recovered_cautions(folder: Path) -> tuple[Caution, ...]:
    """One caution for each file in recovered.json of this very folder."""
    subject = folder.parent.name if _ATTEMPT.fullmatch(folder.name) else ""
    return tuple(_recovered_caution(one, subject) for one in _read_recovered(folder) if not _is_outdated(one))


def _by_home(folder: Path, found: Iterable[Recovered]) -> dict[Path, list[Recovered]]:
    """By the attempt each file belongs to, since that is where a reader of the attempt looks."""
    homes: dict[Path, list[Recovered]] = {}
    for one in found:
        if one.foreign:
            # The attempt it names is another's: no folder is created for it. It is reported with the campaign, not again with each attempt.
            homes.setdefault(folder, []).extend([one] if not _ATTEMPT.fullmatch(folder.name) else [])
            continue
        parts = PurePath(one.file).parts
        depth = next((index + 1 for index, part in enumerate(parts[:-1]) if _ATTEMPT.fullmatch(part)), 0)
        home = folder.joinpath(*parts[:depth])
        homes.setdefault(home, []).append(replace(one, file=str(PurePath(*parts[depth:]))))
    return homes


def _write_recovered(home: Path, found: Iterable[Recovered]) -> None:
    known = {(one.file, one.t): one for one in (*_read_recovered(home), *found)}
    kept = sorted((one for one in known.values() if not _is_outdated(one)), key=lambda one: (one.file, one.t))
    files.write_json(AttemptPaths(home).recovered, to_json(kept))


def _read_recovered(home: Path) -> list[Recovered]:
    stored = files.read_json(AttemptPaths(home).recovered)
    read = [from_json_or_none(Recovered, one) for one in stored] if isinstance(stored, list) else []
    return [one for one in read if one is not None]


def _is_outdated(one: Recovered) -> bool:
    """A whole file that was kept and is gone (a newer one was written in its place meanwhile), or another campaign's that was removed."""
    is_removable = one.foreign or one.kept_at.endswith(".whole")
    return not one.merged and is_removable and not _is_on_other_host(one) and not os.path.lexists(one.kept_at)


def _is_on_other_host(one: Recovered) -> bool:
    return one.host != os.uname().nodename


def _recovered_caution(one: Recovered, subject: str) -> Caution:
    if one.foreign:
        where = f"{one.kept_at} on {one.host}"
        text = f"{one.file}: {one.bytes:,} bytes in {where} were left alone: {one.why}. Remove that file if nobody needs it."
        return Caution(kind="kept_elsewhere", subject=subject, text=text, numbers={"bytes": one.bytes, "merged": 0})
    text = f"{one.file}: {one.bytes:,} bytes were written to the fallback folder while the disk failed ({one.error})"
    if one.merged:
        text += " and merged back."
    elif _is_on_other_host(one) or os.path.lexists(one.kept_at):
        text += f" and could not be merged back yet ({one.why}). They are in {one.kept_at} on {one.host}, after a header line."
    else:
        text += f" in {one.kept_at}, which is gone: it was removed, or the host was restarted."
    return Caution(kind="kept_elsewhere", subject=subject, text=text, numbers={"bytes": one.bytes, "merged": int(one.merged)})
