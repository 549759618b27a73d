"""Effective settings of an attempt, as its ranks report them.

In: the event files of the ranks. Out: the settings by name, each with what it was declared to follow. The last event of a rank counts. A
setting that not every rank reports is what the others report; one on which they disagree has the value `mixed: fused on 3 of 4 ranks`, with
what a rank of the minority has as the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.collect.events import events_of_kind, rank_of_file
from seatrial.records.attempt import Attempt
from seatrial.records.measure import MIXED_RANKS, Effective, EffectiveSetting

# Every rank of a host has a device of its own.
_DEVICE = re.compile(r"(cuda|xpu|npu|hpu):\d+")
_NO_REASONS = ("", "as requested")


def read_effective(paths: Sequence[Path], attempt: Attempt, num_events: Mapping[int, int] | None = None) -> Effective:
    """The settings of all ranks. With `num_events`, how many such events each rank has, files are read no further than the last of them,
    which is near the beginning."""
    by_rank: dict[int, Effective] = {}
    for path in paths:
        rank = rank_of_file(path)
        expected = None if num_events is None else num_events.get(rank, 0)
        if effective := _read_rank(path, attempt, expected):
            by_rank[rank] = effective
    return merge_ranks(by_rank)


def _read_rank(path: Path, attempt: Attempt, expected: int | None) -> Effective:
    """Read line by line: value types vary, so no table holds them."""
    found: dict[str, EffectiveSetting] = {}
    for event in events_of_kind("effective", path, attempt, expected):
        setting, values = event.get("setting"), (event.get("requested"), event.get("effective"), event.get("reason"))
        if not isinstance(setting, str) or any(isinstance(value, (dict, list)) for value in values):
            continue
        declared = event.get("follows")
        found[setting] = EffectiveSetting(
            name=setting,
            requested=event.get("requested"),
            effective=event.get("effective"),
            reason=str(event.get("reason") or ""),
            follows=tuple(filter(None, map(str.strip, declared.split(",")))) if isinstance(declared, str) else (),
        )
    return found


def merge_ranks(by_rank: Mapping[int, Effective]) -> Effective:
    """One value for each setting: what the lowest rank that reports it has, unless another one disagrees."""
    ranks = sorted(by_rank)
    names = dict.fromkeys(name for rank in ranks for name in by_rank[rank])
    return {name: _merge({rank: by_rank[rank][name] for rank in ranks if name in by_rank[rank]}) for name in names}


def _merge(reports: Mapping[int, EffectiveSetting]) -> EffectiveSetting:
    first = next(iter(reports.values()))
    # One rank's declaration is enough.
    first = replace(first, follows=next((one.follows for one in reports.values() if one.follows), ()))
    values = {rank: _DEVICE.sub(r"\1", one.effective_text) for rank, one in reports.items()}
    num_ranks = Counter(values.values())
    if len(num_ranks) == 1:
        return first
    usual, num_usual = num_ranks.most_common(1)[0]
    rank = next(rank for rank, value in values.items() if value != usual)
    reason = reports[rank].reason
    why = f"rank {rank} has {values[rank] or 'none'}{'' if reason in _NO_REASONS else f': {reason}'}"
    return replace(first, effective=f"{MIXED_RANKS}{usual or 'none'} on {num_usual} of {len(reports)} ranks", reason=why)
