"""The latest heartbeat of every rank, with its times converted to the harness's clock.

In: an attempt's folder, polled. Out: one `Heartbeat` for each rank that has written any. Only the end of a
file that has grown is read. Torn lines and lines of another attempt or rank are skipped, and an unreadable file leaves the rank where it
was. While the folder's disk fails, ranks write to the fallback folder (see `append`) and are read there.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.core.fallback import fallback_entry
from seatrial.core.paths import AttemptPaths
from seatrial.observe.training_health import HealthSample, read_sample
from seatrial.records.events import HEARTBEAT_EVERY_S

# A line has about 300 bytes, one with a long message more.
TAIL_SIZES_BYTES = (4096, 65536)
# How many lines of a tail are tried before it counts as unreadable.
MAX_LINES = 16
# A file that has not grown for longer may continue in the fallback folder.
FALLBACK_AFTER_S = 1.5 * HEARTBEAT_EVERY_S
# Larger values are rejected: a float no longer counts steps one by one, and no step takes a day.
MAX_STEPS = 2**53
MAX_ITER_MS = 86_400_000.0
MAX_TEXT_LENGTH = 200
# A clock that is ahead by less is within what time services correct, and harmless here.
MIN_AHEAD_S = 1.0
# A shared folder may show a file a few seconds late, and the harness itself may be slow to read.
MIN_BEHIND_S = 30.0
# `msg` of a line with the fields of `probe.progress`.
PROGRESS = "progress"
_NAME = re.compile(r"heartbeat_rank(\d{1,9})\.jsonl")

OffsetOf = Callable[[int], float | None]
"""Rank → how far its host's clock is ahead of ours, in seconds; None while unknown."""


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """One validated line."""

    rank: int
    step: int | None
    """The last step that ended; None before the first."""
    phase: str = ""
    pid: int | None = None
    host: str = ""
    ts: float | None = None
    step_t: float | None = None
    iter_ms_p50: float | None = None
    paused_s: float = 0.0
    file_bytes: int = 0
    """Size of the file: it grows with every heartbeat, whatever the clocks do."""
    health: HealthSample | None = None
    """The figures of the newest line with any, which may be an earlier one."""


class HeartbeatReader:
    """All heartbeat files of one attempt."""

    def __init__(self, attempt: AttemptPaths, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._attempt, self._monotonic = attempt, monotonic
        self._files: dict[int, _HeartbeatFile] = {}

    def read(self) -> list[Heartbeat]:
        now_m = self._monotonic()
        for rank, path in self._paths():
            if rank not in self._files:
                self._files[rank] = _HeartbeatFile(path, rank, self._attempt.number, now_m)
        latest = (self._files[rank].read(now_m) for rank in sorted(self._files))
        return [heartbeat for heartbeat in latest if heartbeat is not None]

    def _paths(self) -> list[tuple[int, Path]]:
        try:
            found = [(_NAME.fullmatch(path.name), path) for path in self._attempt.folder.iterdir()]
        except OSError:
            return []
        return [(int(match.group(1)), path) for match, path in found if match]


class _HeartbeatFile:
    """The file of one rank."""

    def __init__(self, path: Path, rank: int, attempt: int, now_m: float) -> None:
        self._path, self._rank, self._attempt = path, rank, attempt
        self._latest: Heartbeat | None = None
        self._stamp: tuple[int, int] | None = None
        self._fallback_stamp: tuple[int, int] | None = None
        self._changed_m = now_m

    def read(self, now_m: float) -> Heartbeat | None:
        stamp = _size_and_mtime(self._path)
        if stamp is not None and stamp != self._stamp:
            self._stamp, self._changed_m = stamp, now_m
            self._read_tail(self._path, stamp[0])
        elif now_m - self._changed_m > FALLBACK_AFTER_S:
            self._read_fallback()
        return self._latest

    def _read_fallback(self) -> None:
        fallback = fallback_entry(self._path)
        stamp = _size_and_mtime(fallback) if fallback else None
        if fallback and stamp is not None and stamp != self._fallback_stamp:
            self._fallback_stamp = stamp
            self._read_tail(fallback, stamp[0] + (self._stamp[0] if self._stamp else 0))

    def _read_tail(self, path: Path, file_bytes: int) -> None:
        for tail_bytes in TAIL_SIZES_BYTES:
            parsed = (parse_heartbeat(line, self._rank, self._attempt, file_bytes) for line in reversed(_last_lines(path, tail_bytes)))
            found = [heartbeat for heartbeat in parsed if heartbeat is not None]
            if found:
                before = self._latest.health if self._latest else None
                self._latest = replace(found[0], health=next((one.health for one in found if one.health), before))
                return


def parse_heartbeat(line: bytes, rank: int, attempt: int, file_bytes: int = 0) -> Heartbeat | None:
    """The heartbeat in a line; None where it is torn, of another rank or attempt (0: unknown), or holds an impossible step."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("rank") != rank:
        return None
    if attempt != 0 and value.get("attempt") not in (None, attempt):
        return None
    step = value.get("step")
    if step is not None and not (_is_integer(step) and 0 <= step < MAX_STEPS):
        return None
    pid = value.get("pid")
    iter_ms = _number(value.get("iter_ms_p50"))
    return Heartbeat(
        rank=rank,
        step=step,
        phase=_text(value.get("phase")),
        pid=pid if _is_integer(pid) else None,
        host=_text(value.get("host")),
        ts=_number(value.get("ts")),
        step_t=_number(value.get("step_t")),
        iter_ms_p50=iter_ms if iter_ms is not None and 0 < iter_ms <= MAX_ITER_MS else None,
        paused_s=max(_number(value.get("paused_s")) or 0.0, 0.0),
        file_bytes=file_bytes,
        health=read_sample(step, value) if step is not None and is_progress(value) else None,
    )


def is_progress(value: Mapping[str, Any]) -> bool:
    """Whether a line has the fields of `probe.progress`; notes may follow in its `msg`."""
    return _text(value.get("msg")).partition(";")[0] == PROGRESS


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _text(value: Any) -> str:
    return value[:MAX_TEXT_LENGTH] if isinstance(value, str) else ""


def _size_and_mtime(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _last_lines(path: Path, tail_bytes: int) -> list[bytes]:
    try:
        with open(path, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - tail_bytes))
            return source.read(tail_bytes).splitlines()[-MAX_LINES:]
    except OSError:
        return []


def unknown_offset(rank: int) -> float | None:
    """None for every rank: on one host all share a clock."""
    return None


class HostClocks:
    """Converts heartbeat times from the clocks of the ranks' hosts to the harness's clock.

    The offset that the connection to a host measured is used. Otherwise it is estimated: a heartbeat that was seen before it was written
    comes from a clock that is ahead; heartbeats of a clock far behind are all seen late by as much. Smaller delays come from the shared
    folder and our polling, and are ignored.
    """

    def __init__(self, offset_of: OffsetOf = unknown_offset, wall: Callable[[], float] = time.time, *, estimates: bool = True) -> None:
        """`estimates` False: the ranks are on this host and use our own clock."""
        self._offset_of, self._wall, self._estimates = offset_of, wall, estimates
        self._seen: dict[int, float] = {}
        self._delay_s: dict[int, float] = {}
        """By rank, the shortest time from a heartbeat to our reading it, by two clocks."""

    def convert(self, heartbeats: Sequence[Heartbeat]) -> list[Heartbeat]:
        now_t = self._wall()
        return [self._convert(heartbeat, now_t) for heartbeat in heartbeats]

    def offset_s(self, rank: int) -> float:
        """How far a rank's clock is ahead of ours; 0 where unknown."""
        known = self._offset_of(rank)
        if known is not None:
            return known
        delay_s = self._delay_s.get(rank, 0.0)
        return -delay_s if delay_s < -MIN_AHEAD_S or delay_s > MIN_BEHIND_S else 0.0

    def _convert(self, heartbeat: Heartbeat, now_t: float) -> Heartbeat:
        rank = heartbeat.rank
        if self._estimates and heartbeat.ts is not None and self._seen.get(rank) != heartbeat.ts:
            self._seen[rank] = heartbeat.ts
            self._delay_s[rank] = min(now_t - heartbeat.ts, self._delay_s.get(rank, now_t - heartbeat.ts))
        ahead_s = self.offset_s(rank)
        if not ahead_s:
            return heartbeat
        ts, step_t = (None if time_t is None else time_t - ahead_s for time_t in (heartbeat.ts, heartbeat.step_t))
        return replace(heartbeat, ts=ts, step_t=step_t)
