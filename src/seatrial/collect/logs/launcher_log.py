"""launcher.log as lines: who printed each, and when.

In: launcher.log and launcher_arrivals.csv of each host. Out: lines with rank and arrival time; lines split from the prefixes that
launchers put before them; the last lines of all hosts merged by arrival; stage 1's own timing lines; how many ranks deepspeed started
and finished. Standard library only.
"""

from __future__ import annotations

import base64
import bisect
import contextlib
import heapq
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from seatrial.collect.logs.bounded_lines import LineIndex, LinePiece, bounded_lines, lines_with, skipped_bytes
from seatrial.core.fallback import fallback_entry
from seatrial.core.files import open_file, tail_lines
from seatrial.core.log_header import HeaderBlanker, find_header
from seatrial.core.log_lines import LARGEST_STEP, LONGEST_LINE, NUMBER, split_rank, strip_colours
from seatrial.core.paths import AttemptPaths
from seatrial.core.subsequence import longest_non_decreasing
from seatrial.core.text import MIB
from seatrial.records.columns import ARRIVALS
from seatrial.records.eta import RANK0, EtaPoint
from seatrial.records.events import PHASES
from seatrial.records.measure import TimingPoint
from seatrial.records.stored import HostFolder, host_folders, read_nodes

MAX_ARRIVAL_BYTES = 64 * MIB
LONGEST_ROW = 200
HEADER = ARRIVALS[0].encode()


@dataclass(frozen=True, slots=True)
class Arrival:
    """One chunk of output: where it ends and when it came."""

    end_bytes: int
    t: float
    m: float


UNKNOWN = Arrival(end_bytes=0, t=math.nan, m=math.nan)


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Valid rows of launcher_arrivals.csv, by offset."""

    rows: Sequence[Arrival] = ()
    num_skipped: int = 0
    """Malformed rows and rows that contradict the others."""
    problem: str = ""
    """Why the file could not be read, where there is one."""


def read_arrivals(path: Path, max_bytes: int = MAX_ARRIVAL_BYTES) -> Arrivals:
    """All valid rows; none without such a file. Offsets and the monotonic clock only grow: other rows are skipped."""
    try:
        found = list(bounded_lines(path, max_bytes, LONGEST_ROW))
    except FileNotFoundError:
        return Arrivals()
    except OSError as error:
        return Arrivals(problem=error.strerror or "cannot be read")
    # Neither an unfinished row nor the header counts as skipped.
    whole = [piece for piece in found if piece.text.endswith(b"\n") and not piece.text.startswith(HEADER)]
    head, end = (_valid_rows([_parse_arrival(piece) for piece in whole if piece.part == part]) for part in (0, 1))
    # Chunks between the two parts are unknown; their bytes must not get the time of the next known one.
    rows = [*head, *map(_untimed, end[:1]), *end[1:]]
    return Arrivals(rows=rows, num_skipped=len(whole) - len(rows))


def _valid_rows(read: Sequence[Arrival | None]) -> list[Arrival]:
    """Rows in order. A chunk after a lost one holds the lost one's bytes too, so its time is unknown."""
    rows = [row for row in read if row is not None]
    kept = _in_order(rows)
    if len(kept) == len(read):
        return kept
    doubtful = {later for row, later in itertools.pairwise(read) if row is None and later is not None}
    for lost in set(rows).difference(kept):
        index = bisect.bisect_left(kept, lost.end_bytes, key=lambda row: row.end_bytes)
        doubtful.update(kept[index : index + 1])
    return [_untimed(row) if row in doubtful else row for row in kept]


def _untimed(row: Arrival) -> Arrival:
    return Arrival(row.end_bytes, math.nan, math.nan)


def _parse_arrival(piece: LinePiece) -> Arrival | None:
    try:
        end_bytes, t, m = piece.text.split(b",")
        row = Arrival(int(end_bytes), float(t), float(m))
    except ValueError:
        return None
    return row if piece.begins and row.end_bytes >= 0 and math.isfinite(row.t) and math.isfinite(row.m) else None


def _in_order(rows: list[Arrival]) -> list[Arrival]:
    """Rows whose offsets grow and whose monotonic clock does not go back."""
    if all(one.end_bytes < later.end_bytes and one.m <= later.m for one, later in itertools.pairwise(rows)):
        return rows
    by_offset = sorted(set(rows), key=lambda row: (row.end_bytes, -row.m))
    kept = [by_offset[index] for index in longest_non_decreasing([row.m for row in by_offset])]
    return [row for index, row in enumerate(kept) if index == 0 or row.end_bytes > kept[index - 1].end_bytes]


LARGEST_LOG_BYTES = 64 * MIB
"""Read in seconds; ten gigabytes would take many minutes and add nothing to step times."""
BLOCK_BYTES = MIB
# As much of a line as is searched, at four bytes per character.
LONGEST_TEXT_BYTES = 4 * LONGEST_LINE


@dataclass(frozen=True, slots=True)
class StampedLine:
    """One line; both clocks are NaN without an arrival."""

    rank: int | None
    text: str
    t: float
    m: float
    part: int = 0
    """0 for the head of the log, 1 for its end, where the middle was not read."""


@dataclass(frozen=True, kw_only=True)
class LogText:
    """What could be read of an attempt's output."""

    lines: list[StampedLine]
    arrivals: Arrivals
    left_out_bytes: int = 0
    problem: str = ""
    """Why the log could not be read, where there is one."""


def read_log(log: Path, arrivals: Path, keywords: Sequence[bytes] = (), index: LineIndex | None = None) -> LogText:
    """Every line, or those with one of `keywords`, through the `index` if given. Of a log beyond LARGEST_LOG_BYTES only head and end are
    read."""
    arrived = read_arrivals(arrivals)
    try:
        left_out = skipped_bytes(log, LARGEST_LOG_BYTES)
        return LogText(lines=list(stamped_lines(log, arrived.rows, keywords, index)), arrivals=arrived, left_out_bytes=left_out)
    except FileNotFoundError:
        return LogText(lines=[], arrivals=arrived)
    except OSError as error:
        return LogText(lines=[], arrivals=arrived, problem=error.strerror or "cannot be read")


def stamped_lines(
    log: Path, arrivals: Sequence[Arrival], keywords: Sequence[bytes] = (), index: LineIndex | None = None
) -> Iterator[StampedLine]:
    """Lines with their rank and the arrival of their last byte. A carriage return ends a line too; what follows keeps the rank."""
    clock, header = _ArrivalClock(arrivals), find_header(log)
    rank: int | None = None
    for piece in lines_with(log, LARGEST_LOG_BYTES, keywords, index) if keywords else bounded_lines(log, LARGEST_LOG_BYTES):
        if piece.start < header.num_bytes:
            continue
        for start, text, begins in _split_returns(piece):
            if keywords and not any(keyword in text for keyword in keywords) and not text.startswith(b"[rank"):
                rank = None if begins else rank
                continue
            prefix_rank, content = split_rank(text[:LONGEST_TEXT_BYTES].decode("utf-8", errors="replace"))
            rank = prefix_rank if begins or prefix_rank is not None else rank
            if content:
                # A bar's carriage return comes with the next bar, so the end of the text counts.
                arrival = clock.arrival_of(start + len(text))
                yield StampedLine(rank, content, arrival.t, arrival.m, piece.part)


def _split_returns(piece: LinePiece) -> Iterator[tuple[int, bytes, bool]]:
    """Offset and text of every part between carriage returns, and whether a new line begins with it."""
    start, begins = piece.start, piece.begins
    for text in piece.text.rstrip(b"\n").split(b"\r"):
        yield start, text, begins
        start, begins = start + len(text) + 1, False


class _ArrivalClock:
    """Looks up arrivals for offsets that only grow."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._left = iter(arrivals)
        self._now = next(self._left, UNKNOWN)

    def arrival_of(self, end_bytes: int) -> Arrival:
        """The chunk in which the byte before `end_bytes` came."""
        while self._now is not UNKNOWN and self._now.end_bytes < end_bytes:
            self._now = next(self._left, UNKNOWN)
        return self._now


# `[rank3]: ` is ours and torch's, `[host node2]: ` ours for one of many hosts, `[default3]:` torchrun's, `[1,3]<stderr>:` mpirun's, `3: `
# that of `srun --label`, a time with its zone that of `kubectl logs --timestamps`, `(TrainWorker pid=7, ip=10.0.0.1) ` Ray's; vLLM puts
# process, time and place before every line.
PREFIXES = re.compile(
    r"\[rank\d{1,9}\]: ?"
    r"|\[host [^\]\s]{1,255}\]: ?"
    r"|\[(?:default|trainer|worker)\d{1,9}(?:\|\d{1,9})?\]: ?"
    r"|\[\d{1,9},\d{1,9}\]<std(?:out|err)>: ?"
    r"| {0,3}\d{1,6}: "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?"
    r"|\(\w{1,80} pid=\d{1,9}(?:, ip=[\w.:]{1,45})?\) (?!(?:ERROR|INFO|WARNING) \d\d-\d\d )"
    r"|(?:\(\w{1,40}(?: rank=\d{1,6})?(?: pid=\d{1,9})?\) )?(?:ERROR|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,80}:\d{1,6}\] ?"
)
HOST = re.compile(r"\[host ([^\]\s]{1,255})\]:")
# These parts of vLLM's prefixes vary by line; only the process and the level count.
TIME_AND_PLACE = re.compile(
    r"(?:^| )(?:ERROR|INFO) \d\d-\d\d .*$|(?<=WARNING) \d\d-\d\d .*$|^\d{4}-\d\d-\d\dT\S*(?: std(?:out|err) [FP])?$"
)
# `host: ` is pdsh's. A word and a colon also begin an exception, so it is a host only before what must begin a line, or where pdsh names
# it.
LINE_BEGINNING = (
    r"(?:Traceback \(most recent call last\):|  File \"|\[rank\d|\[\d{4}-\d\d-\d\d [^\]]{1,40}\] \[\w+\] \[(?:launch|runner)\.py)"
)
BEFORE_BEGINNING = re.compile(rf"^( {{0,5}}[\w.@-]{{1,80}}): {LINE_BEGINNING}")
# Put before every line by a pipe or a container's log viewer: a time (`| ts`, docker, a scheduler), docker compose's service,
# kubectl's pod, torchx's role. A logger's lines begin with a time too, and `train/3` may be text: they are prefixes from the first line on
# where one stands before what must begin a line.
TIME_BEFORE = re.compile(
    r"\[?(?:\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    r"\]? (?:std(?:out|err) [FP] )?"
)
CONTAINER_BEFORE = re.compile(r"[\w.@-]{1,80} *\| |\[pod/[^\]\s]{1,200}\] |[A-Za-z][\w.-]{0,60}/\d{1,6} ")
REPORT_BEGINNING = r"(?:Root Cause \(first observed failure\)|torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError)"
BEGINNING = re.compile(rf"{LINE_BEGINNING}|{REPORT_BEGINNING}")
# pdsh's own message about a host whose command failed.
NAMED_BY_PDSH = re.compile(r"^pdsh@[\w.-]{1,80}: ([\w.-]{1,80}): ssh exited")


class PrefixedLine(NamedTuple):
    """One line of a log, split from the prefixes that launchers put before it."""

    source: str
    """The prefixes, joined; empty for a line without any."""
    text: str


def host_prefix(host: str) -> str:
    return f"[host {host}]: " if host else ""


def host_in(source: str) -> str:
    """The host that such a prefix names; empty without one."""
    found = HOST.match(source)
    return found.group(1) if found else ""


def without_host(source: str) -> str:
    return HOST.sub("", source, count=1).strip()


class PrefixSplitter:
    """Splits lines as they come. Host names of pdsh's, task numbers padded with blanks, containers' names and whether a time stands before
    each line are learned from what follows them."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self._containers: set[str] = set()
        self._has_times = False

    @property
    def num_learned(self) -> int:
        return len(self.hosts) + len(self._containers) + self._has_times

    def split(self, line: str) -> PrefixedLine:
        if ": " in line and (match := NAMED_BY_PDSH.match(line) or BEFORE_BEGINNING.match(line)):
            self.hosts.add(match.group(1))
        text, prefixes = line, []
        while True:
            if time := self._time_before(text):
                text = text[time:]
            elif length := self._prefix_length(text):
                prefixes.append(text[:length].strip())
                text = text[length:]
            else:
                break
        return PrefixedLine(" ".join(kept for prefix in prefixes if (kept := TIME_AND_PLACE.sub("", prefix))), text)

    def _time_before(self, text: str) -> int:
        """Length of the time before a line; 0 without one."""
        match = TIME_BEFORE.match(text)
        if match is None:
            return 0
        if not self._has_times:
            behind = CONTAINER_BEFORE.match(text, match.end())
            self._has_times = BEGINNING.match(text, behind.end() if behind else match.end()) is not None
        return match.end() if self._has_times else 0

    def _prefix_length(self, text: str) -> int:
        if prefix := PREFIXES.match(text):
            return prefix.end()
        if container := CONTAINER_BEFORE.match(text):
            time = TIME_BEFORE.match(text, container.end())
            if BEGINNING.match(text, time.end() if time else container.end()):
                self._containers.add(container.group())
            if container.group() in self._containers:
                return container.end()
        if not self.hosts:
            return 0
        host, colon, _ = text.partition(": ")
        return len(host) + 2 if colon and host in self.hosts else 0


MIN_LINES_PER_HOST = 40
"""Enough for a traceback, however many hosts there are."""
MIN_BYTES_PER_HOST = 2 << 10
MAX_SHOWN_LINES = 200
"""Up to so many lines are shown to a reader. More are searched for a cause and must include the host that failed first."""


@dataclass(frozen=True, kw_only=True)
class HostLog:
    """One host's output."""

    host: str
    """Empty for a run on one host."""
    path: Path


def host_logs(attempt: AttemptPaths) -> list[HostLog]:
    return [HostLog(host=folder.name, path=folder.paths.launcher_log) for folder in _folders(attempt)]


def read_lines(path: Path) -> Iterator[str]:
    """Every line, whatever its length (of a very long one the end); invalid UTF-8 is replaced. Lines of a META or CMD block are
    empty."""
    return map(HeaderBlanker().blank, _all_lines(path))


def _all_lines(path: Path) -> Iterator[str]:
    with open_file(path) as source:
        rest = b""
        while block := source.read(BLOCK_BYTES):
            whole, newline, begun = block.rpartition(b"\n")
            if newline:
                yield from (rest + whole).decode("utf-8", errors="replace").split("\n")
                rest = begun
            else:
                rest = (rest + begun)[-LONGEST_TEXT_BYTES:]
        if rest:
            yield rest.decode("utf-8", errors="replace")


def all_lines(attempt: AttemptPaths) -> Iterator[tuple[str, str]]:
    """(file, line) of every line of all hosts, by arrival on one clock; lines of one of several hosts have a prefix. What cannot be read is
    left out."""
    folders = _folders(attempt)
    if len(folders) == 1:
        yield from _lines_of(folders[0], attempt)
        return
    # A stable merge: the order within a host is kept, and of lines that arrived together node 0's come first.
    for _, file, line in heapq.merge(*(_timed_lines(folder, attempt) for folder in folders), key=lambda line: line[0]):
        yield file, line


def _lines_of(folder: HostFolder, attempt: AttemptPaths) -> Iterator[tuple[str, str]]:
    """With what is in the fallback folder while its disk fails."""
    log = folder.paths.launcher_log
    name = str(log.relative_to(attempt.folder)) if log.is_relative_to(attempt.folder) else str(log)
    for path in (log, fallback_entry(log)):
        with contextlib.suppress(OSError):
            yield from ((name, line) for line in (read_lines(path) if path else ()))


def _timed_lines(folder: HostFolder, attempt: AttemptPaths) -> Iterator[tuple[float, str, str]]:
    clock, prefix = _ArrivalClock(read_arrivals(folder.paths.arrivals).rows), host_prefix(folder.name)
    header = find_header(folder.paths.launcher_log)
    # Lines of the header are empty.
    arrived_t, end_bytes = -math.inf, header.num_bytes - header.num_lines
    for name, line in _lines_of(folder, attempt):
        # Invalid UTF-8 makes the offset slightly larger.
        end_bytes += len(line.encode("utf-8", errors="replace")) + 1
        t = clock.arrival_of(end_bytes).t - folder.offset_s
        arrived_t = max(arrived_t, t) if math.isfinite(t) else arrived_t
        yield arrived_t, name, f"{prefix}{line}"


def last_lines(attempt: AttemptPaths, count: int, max_bytes: int, host: str = "") -> list[str]:
    """The last `count` lines of all hosts, or of `host` alone, by arrival on one clock. More than MAX_SHOWN_LINES include at least
    MIN_LINES_PER_HOST of each host, within `max_bytes` of all. Lines of one of several hosts have a prefix."""
    folders = _folders(attempt)
    if len(folders) == 1:
        return _tail(folders[0].paths.launcher_log, count, max_bytes)
    folders = [folder for folder in folders if folder.name == host] or folders
    each, each_bytes = max(min(count, MIN_LINES_PER_HOST), count // len(folders)), max(max_bytes // len(folders), MIN_BYTES_PER_HOST)
    # A stable merge: the order within a host is kept, and of lines that arrived together node 0's come first.
    merged = heapq.merge(*(list(_arrived_lines(folder, each, each_bytes)) for folder in folders), key=lambda line: line[0])
    lines = [text for _, text in merged]
    return lines[-count:] if count <= MAX_SHOWN_LINES else lines


def _folders(attempt: AttemptPaths) -> list[HostFolder]:
    return host_folders(attempt, read_nodes(attempt)[0])


def _tail(log: Path, count: int, max_bytes: int) -> list[str]:
    """With what is in the fallback folder while its disk fails."""
    fallback = fallback_entry(log)
    header = find_header(log).num_bytes
    kept = tail_lines(fallback, count, max_bytes) if fallback else []
    return [*tail_lines(log, count, max_bytes, header), *kept][-count:]


def _arrived_lines(folder: HostFolder, count: int, max_bytes: int) -> Iterator[tuple[float, str]]:
    """(arrival by the harness's clock, line with its prefix); times never go back."""
    log, prefix = folder.paths.launcher_log, host_prefix(folder.name)
    lines = _tail(log, count, max_bytes)
    rows = read_arrivals(folder.paths.arrivals).rows
    try:
        end_bytes = skipped_bytes(log, 0)
    except OSError:
        end_bytes = 0
    # Offsets are counted from the end of the file: invalid UTF-8 makes them slightly smaller.
    ends = []
    for line in reversed(lines):
        ends.append(end_bytes)
        end_bytes -= len(line.encode("utf-8", errors="replace")) + 1
    arrived_t = -math.inf
    for line, end in zip(lines, reversed(ends), strict=True):
        arrived_t = max(arrived_t, _arrival_t(rows, end) - folder.offset_s)
        yield arrived_t, f"{prefix}{line}"


def _arrival_t(rows: Sequence[Arrival], end_bytes: int) -> float:
    index = bisect.bisect_left(rows, end_bytes, key=lambda row: row.end_bytes)
    t = rows[index].t if index < len(rows) else rows[-1].t if rows else -math.inf
    return t if math.isfinite(t) else -math.inf


STAGE1_STEP = re.compile(r"(?<!Val )\bStep (\d+): Loss ")
STAGE1_TIMING = re.compile(r"\bTiming\(window=\d+\): (.+)")
PERCENTILES = re.compile(rf"(\w+_ms):p50=({NUMBER}) p90=({NUMBER})")
STAGE1_RANK = re.compile(r"\bTimingRank step=(\d{1,12}) rank=(\d{1,9}) (.+)")
STAGE1_ETA = re.compile(rf"\bTimingETA step=(\d+) remain_steps=(\d+) eta_sec=({NUMBER})(.*)")
ETA_MODE = re.compile(r"\bmode=(\w+)")
FIELD = re.compile(rf"(\w+)=({NUMBER})")


@dataclass(frozen=True, kw_only=True)
class Stage1Reading:
    """Stage 1's timing lines: `Timing(window=…)`, `TimingETA` and `TimingRank`."""

    points: tuple[TimingPoint, ...] = ()
    eta_points: tuple[EtaPoint, ...] = ()
    phases: dict[int, dict[int, dict[str, float]]] = field(default_factory=dict)
    """Rank → step → phase → ms."""


def read_stage1_lines(lines: Sequence[StampedLine]) -> Stage1Reading:
    """Timing points, estimates and per-rank phases. A `Timing` line has no step number: it belongs to the `Step` line before it. A step
    printed twice (by several ranks' logs) counts once."""
    points: dict[int, TimingPoint] = {}
    estimates: dict[int, EtaPoint] = {}
    step: int | None = None
    for line in lines:
        text = strip_colours(line.text)
        if match := STAGE1_STEP.search(text):
            number = _number(match.group(1))
            step = None if number is None else int(number)
        elif (match := STAGE1_TIMING.search(text)) and step is not None and step not in points:
            points[step] = TimingPoint(index=len(points), step=step, values=_percentiles(match.group(1)))
        elif (match := STAGE1_ETA.search(text)) and (estimate := _estimate(match, len(estimates))):
            estimates.setdefault(estimate.step, estimate)
    phases = read_rank_lines(lines).phases
    return Stage1Reading(points=tuple(points.values()), eta_points=tuple(estimates.values()), phases=phases)


def read_rank_lines(lines: Sequence[StampedLine]) -> Stage1Reading:
    """The per-rank phases alone: any script may print `TimingRank` lines beside its own."""
    phases: dict[int, dict[int, dict[str, float]]] = {}
    for line in lines:
        if "TimingRank" in line.text and (match := STAGE1_RANK.search(strip_colours(line.text))):
            phases.setdefault(int(match.group(2)), {})[int(match.group(1))] = _phases(match.group(3))
    return Stage1Reading(phases=phases)


def _estimate(match: re.Match[str], index: int) -> EtaPoint | None:
    """The estimate of a line; None with a number out of range."""
    step, remain_steps, eta_s = (_number(match.group(group)) for group in (1, 2, 3))
    if step is None or remain_steps is None or eta_s is None:
        return None
    mode = ETA_MODE.search(match.group(4))
    fields = dict(FIELD.findall(match.group(4)))
    samples = _number(fields.get("samples", ""))
    return EtaPoint(
        index=index,
        step=int(step),
        remain_steps=int(remain_steps),
        eta_s=eta_s,
        mode=mode.group(1) if mode else RANK0,
        source="log",
        basis_iter_ms=_number(fields.get("basis_iter_ms", "")),
        samples=None if samples is None else int(samples),
    )


def _number(text: str) -> float | None:
    """The number; None for other text and beyond any step or time."""
    value = float(text) if text else math.nan
    return value if 0 <= value <= LARGEST_STEP else None


def _percentiles(text: str) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, p50, p90 in PERCENTILES.findall(text):
        values[f"{name}_p50"], values[f"{name}_p90"] = _number(p50), _number(p90)
    return values


def _phases(text: str) -> dict[str, float]:
    values = {f"{name}_ms": _number(value) for name, value in FIELD.findall(text)}
    return {phase: value for phase in PHASES if (value := values.get(phase)) is not None}


# Searched, not matched: where ranks share the output, an unfinished line of theirs may precede it.
FINISHED = re.compile(rb"\[launch\.py:\d+:\w+\] Process (\d+) exits successfully\.")
# The runner's own line: the command it starts, with ranks and hosts in it.
STARTED = re.compile(rb"\[runner\.py:\d+:main\] cmd = .*?--world_info=([A-Za-z0-9_=-]{1,100000})")
# Lines with a rank's prefix are not the launcher's.
RANK_PREFIX = b"[rank"


def num_finished_ranks(logs: Iterable[Path]) -> int:
    """How many ranks finished successfully by deepspeed's launchers; unreadable logs count 0.

    The `deepspeed` runner returns 0 even when the launcher it started (its own, or pdsh) was killed, so its exit code proves nothing. Each
    host has its own log, and process numbers of two hosts may be equal."""
    return sum(len(_finished_processes(log)) for log in logs)


def _finished_processes(launcher_log: Path) -> set[bytes]:
    found: set[bytes] = set()
    with contextlib.suppress(OSError), open_file(launcher_log) as log:
        for line in log:
            if b"exits successfully." in line and not line.startswith(RANK_PREFIX):
                found.update(FINISHED.findall(line))
    return found


def num_started_ranks(launcher_log: Path) -> int | None:
    """How many ranks the last deepspeed runner in a log starts; None without its line."""
    found: int | None = None
    with contextlib.suppress(OSError), open_file(launcher_log) as log:
        for line in log:
            if b"--world_info=" in line and not line.startswith(RANK_PREFIX) and (match := STARTED.search(line)):
                found = _num_ranks(match.group(1)) or found
    return found


def _num_ranks(world_info: bytes) -> int | None:
    """Number of ranks in `{"node1": [0, 1], …}`, given in base64; None for anything else."""
    try:
        hosts = json.loads(base64.urlsafe_b64decode(world_info))
        return sum(len(slots) for slots in hosts.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
