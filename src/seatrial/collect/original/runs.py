"""Runs of a folder that the original scripts wrote: rows and logs matched to attempts.

In: the folder and the rows of its manifests. Out: one `OriginalRun` for each run with a row or a META block that names it. launcher.log
holds a META and a CMD block for each start, then the output; train.log holds the lines of all attempts one after another.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from seatrial.collect.logs.launcher_log import STAGE1_ETA, STAGE1_STEP
from seatrial.collect.original.manifests import (
    ABSENT,
    MAX_REPEATS,
    NAME,
    Row,
    RunKey,
    TextFile,
    by_run,
    is_original_manifest,
    manifests_of,
    read_lines,
    whole,
)
from seatrial.core.log_header import CMD, META
from seatrial.core.log_lines import LARGEST_STEP
from seatrial.core.paths import ATTEMPT_FILES, AttemptPaths, CampaignPaths, OriginalPaths, RunPaths
from seatrial.records.columns import STAGE1_SETTINGS, TRAINER_KEYS

STAMP = re.compile(r"\s*(\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)\s*(Z|[+-]\d\d:?\d\d)?")


def local_s(text: str) -> float | None:
    """The timestamp at the beginning of `text` in seconds by the writer's local clock (as if that clock showed UTC); None without one."""
    with contextlib.suppress(ValueError):
        if match := STAMP.match(text):
            return datetime.datetime.fromisoformat(f"{match[1].replace('/', '-')}Z").timestamp()
    return None


def written_zone_s(text: str) -> float | None:
    """The zone in the timestamp itself, in seconds ahead of UTC; None without one."""
    with contextlib.suppress(ValueError):
        if (match := STAMP.match(text)) and match[2] and (ahead := datetime.datetime.strptime(match[2], "%z").utcoffset()) is not None:
            return ahead.total_seconds()
    return None


HEAD_BYTES = 256
"""More than the first line of launcher.log, META."""
SCRIPT = "train.py"
# Named differently in the manifest and in the trainer's settings.
_COLUMN = {"log_every": "log_every_steps"}
OVERRIDES = {
    **{key.lstrip("+"): _COLUMN.get(setting, setting) for key, setting in TRAINER_KEYS.items() if setting in (*STAGE1_SETTINGS, *_COLUMN)},
    "train.max_step_iterations": "max_steps",
    "train.enable_cuda_sync_timing": "enable_cuda_sync_timing",
    "train.timing_rank_scope": "timing_rank_scope",
}
"""Keys of the trainer's configuration → the manifest's columns."""


@dataclass(frozen=True, kw_only=True)
class LauncherBlock:
    """One start in launcher.log: a META block of key=value lines, a CMD block with the command, then the output."""

    meta: dict[str, str]
    """Known values only."""
    command: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    """The lines of META and CMD."""
    output: tuple[str, ...] = ()

    @property
    def start_local_s(self) -> float | None:
        return local_s(self.meta.get("timestamp", ""))

    @property
    def zone_s(self) -> float | None:
        return written_zone_s(self.meta.get("timestamp", ""))

    @property
    def cells(self) -> dict[str, str]:
        """The manifest's cells from META, else from the command's overrides."""
        found = {}
        for argument in self.command:
            key, _, quoted = argument.lstrip("+").partition("=")
            value = quoted.strip("'\"")
            if key in OVERRIDES and value.lower() not in ABSENT:
                found[OVERRIDES[key]] = value
        return {**found, **self.meta}

    @property
    def devices(self) -> tuple[str, ...]:
        """GPU ids of `--include HOST:0,1` where one host is named; none otherwise."""
        include = next((value for option, value in itertools.pairwise(self.command) if option == "--include"), "")
        ids = include.partition(":")[2]
        return tuple(ids.split(",")) if ids and "@" not in include else ()

    @property
    def launcher_args(self) -> tuple[str, ...]:
        """Arguments between `deepspeed` and the script."""
        script = self._index_of(SCRIPT)
        return self.command[min(self._index_of("deepspeed") + 1, script) : script]

    @property
    def script_args(self) -> tuple[str, ...]:
        return self.command[self._index_of(SCRIPT) + 1 :]

    def _index_of(self, program: str) -> int:
        """Index of the program in the command, with or without a folder; the command's length without it."""
        names = [PurePosixPath(argument).name for argument in self.command]
        return names.index(program) if program in names else len(names)


def read_blocks(lines: Sequence[str]) -> list[LauncherBlock]:
    """Every start, oldest first; [] for a file without lines. A log without META is all output."""
    starts = [index for index, line in enumerate(lines) if line.strip() == META]
    if not starts:
        return [LauncherBlock(meta={}, output=tuple(lines))] if lines else []
    return [_parse_block(lines[start:end]) for start, end in itertools.pairwise([*starts, len(lines)])]


def _parse_block(lines: Sequence[str]) -> LauncherBlock:
    cmd = next((index for index, line in enumerate(lines) if line.strip() == CMD), len(lines))
    fields = (line.partition("=") for line in lines[1:cmd] if "=" in line)
    meta = {name.strip(): value.strip() for name, _, value in fields}
    rest = cmd + 1
    command: list[str] = []
    while rest < len(lines) and not command:
        try:
            command = shlex.split(lines[rest])
        except ValueError:
            # A quote without its end: the log was truncated here.
            command = lines[rest].split()
        rest += 1
    return LauncherBlock(
        meta={name: value for name, value in meta.items() if value.lower() not in ABSENT},
        command=tuple(command),
        head=tuple(lines[:rest]),
        output=tuple(lines[rest:]),
    )


START_SLACK_S = 1.0
"""The driver's timestamps have whole seconds."""


@dataclass(frozen=True)
class Segment:
    """Lines of one attempt in train.log, onto which every attempt of a run appends."""

    lines: tuple[str, ...]

    @cached_property
    def times_local_s(self) -> tuple[float | None, ...]:
        """The timestamp of each line; None for a line without one, such as the rest of a traceback."""
        return tuple(map(local_s, self.lines))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        return tuple(step for line in self.lines if (step := step_in(line)) is not None)

    @property
    def last_step(self) -> int | None:
        return self.steps[-1] if self.steps else None

    @property
    def first_local_s(self) -> float | None:
        return next((time_s for time_s in self.times_local_s if time_s is not None), None)

    @property
    def last_local_s(self) -> float | None:
        return next((time_s for time_s in reversed(self.times_local_s) if time_s is not None), None)

    @property
    def span_s(self) -> float:
        first, last = self.first_local_s, self.last_local_s
        return last - first if first is not None and last is not None else 0.0

    @cached_property
    def max_steps(self) -> int | None:
        """The last step by the first plausible estimate of the time left; None without any."""
        ends = (int(match[1]) + int(match[2]) for line in self.lines if (match := STAGE1_ETA.search(line)))
        return next((end for end in ends if end <= LARGEST_STEP), None)


def split_attempts(lines: Sequence[str], starts_local_s: Sequence[float] = ()) -> list[Segment]:
    """The attempts in train.log, oldest first: each begins at a start of the driver (`starts_local_s`) or where step numbers restart."""
    if not lines:
        return []
    times = [local_s(line) for line in lines]
    borders = {0, len(lines)}
    for start_s in starts_local_s:
        borders.add(next((index for index, time_s in enumerate(times) if time_s is not None and time_s >= start_s - START_SLACK_S), 0))
    # Lines before an attempt's first step belong to it: they begin after the longest silence since the step before.
    borders |= {_after_longest_silence(times, before, first) for before, first in restarts(map(step_in, lines))}
    return [Segment(tuple(lines[start:end])) for start, end in itertools.pairwise(sorted(borders))]


def restarts(steps: Iterable[float | None]) -> Iterator[tuple[int, int]]:
    """Where step numbers restart: indices of the last step before and of the first one after; None has no step."""
    before: tuple[int, float] | None = None
    for index, step in enumerate(steps):
        if step is None:
            continue
        # An attempt that fails at once prints the same step as the one before it.
        if before is not None and step <= before[1]:
            yield before[0], index
        before = index, step


def _after_longest_silence(times: Sequence[float | None], first: int, last: int) -> int:
    stamped = [(index, time_s) for index in range(first, last + 1) if (time_s := times[index]) is not None]
    waits = [(later_s - one_s, index) for (_, one_s), (index, later_s) in itertools.pairwise(stamped)]
    return max(waits, key=lambda wait: wait[0])[1] if waits else last


def step_in(line: str) -> int | None:
    """The step that the trainer's line reports; None for any other line."""
    match = STAGE1_STEP.search(line)
    return int(match[1]) if match and len(match[1]) <= len(str(LARGEST_STEP)) else None


DURATION_SLACK_S = 120.0
"""A row's duration and its lines' timestamps come from two clocks, both in whole seconds."""


@dataclass(frozen=True, kw_only=True)
class OriginalAttempt:
    """Row, part of train.log and block of launcher.log of one attempt; None for what is missing. One without a row was interrupted: the
    driver writes the row last."""

    row: Row | None = None
    segment: Segment | None = None
    block: LauncherBlock | None = None

    @property
    def cells(self) -> dict[str, str]:
        """All known cells by column name; the row comes before the log."""
        return {**(self.block.cells if self.block else {}), **(self.row.cells if self.row else {})}

    @property
    def last_step(self) -> int | None:
        """The last printed step; the row's if no line is left."""
        printed = self.trainer_lines.last_step
        return whole(self.row.cells.get("last_step")) if printed is None and self.row else printed

    @property
    def trainer_lines(self) -> Segment:
        """Lines of the trainer: its part of train.log, else its lines in launcher.log."""
        return self.segment or Segment(self.block.output if self.block else ())


def pair_attempts(rows: Sequence[Row], segments: Sequence[Segment], blocks: Sequence[LauncherBlock]) -> list[OriginalAttempt]:
    """Every attempt that left a trace; all oldest first. Rows have no times, but have their attempt's last step, and the newest block has
    the start of the newest attempt."""
    newest_start = blocks[-1].start_local_s if blocks else None
    last_line_s = segments[-1].last_local_s if segments else None
    # The newest start came after the last line of train.log.
    began_late = newest_start is not None and last_line_s is not None and last_line_s < newest_start
    found: list[OriginalAttempt] = []
    left = list(segments)
    if began_late and left and (not rows or rows[-1].is_success):
        # The newest start left nothing in train.log and no row of its own.
        found.append(OriginalAttempt())
    for index, row in enumerate(reversed(rows)):
        died_first = index == 0 and began_late and not row.is_success
        own = None if died_first else _own_segment(row, left, len(rows) - index)
        if own is not None:
            found += [OriginalAttempt(segment=later) for later in reversed(left[own + 1 :])]
        found.append(OriginalAttempt(row=row, segment=None if own is None else left[own]))
        left = left if own is None else left[:own]
    found += [OriginalAttempt(segment=older) for older in reversed(left)]
    found = found or ([OriginalAttempt()] if blocks else [])
    # The newest block is that of the newest attempt, and so on back.
    own_blocks = [*reversed(blocks), *([None] * len(found))]
    return [replace(attempt, block=block) for attempt, block in zip(found, own_blocks, strict=False)][::-1]


def _own_segment(row: Row, left: Sequence[Segment], rows_left: int) -> int | None:
    """Index of the row's segment; None if its attempt wrote nothing. With more segments than rows, some attempts left no row."""
    surplus = len(left) - rows_left
    candidates = range(len(left) - 1, max(len(left) - 2 - max(surplus, 0), -1), -1)
    fitting = next((index for index in candidates if _fits(row, left[index])), None)
    if fitting is not None or not left:
        return fitting
    return len(left) - 1 if surplus >= 0 else None


def _fits(row: Row, segment: Segment) -> bool:
    last_step = whole(row.cells.get("last_step"))
    same_step = last_step is None or last_step == segment.last_step
    return same_step and (row.duration_s is None or segment.span_s <= row.duration_s + DURATION_SLACK_S)


@dataclass(frozen=True, kw_only=True)
class Span:
    """When an attempt began and ended, seconds since the epoch; None where no file shows it."""

    first_t: float | None = None
    last_t: float | None = None
    duration_s: float = 0.0
    source: str = ""
    """The file it comes from."""

    def covers(self, t: float, slack_s: float = 0.0) -> bool:
        """Whether it includes that moment; an unknown end is open."""
        return (self.first_t is None or t >= self.first_t - slack_s) and (self.last_t is None or t <= self.last_t + slack_s)


def span_of(attempt: OriginalAttempt, zone_s: float) -> Span:
    """The span by the driver's start and duration, else by timestamps in train.log."""
    start_s = attempt.block.start_local_s if attempt.block else None
    first_s, last_s = (attempt.segment.first_local_s, attempt.segment.last_local_s) if attempt.segment else (None, None)
    began_s = first_s if start_s is None else start_s
    duration_s = attempt.row.duration_s if attempt.row else None
    if duration_s is None:
        duration_s = max(last_s - began_s, 0.0) if last_s is not None and began_s is not None else 0.0
    if start_s is None and last_s is not None:
        # The launcher's start is unknown: it was one duration before the end.
        began_s = min(began_s if began_s is not None else last_s, last_s - duration_s)
    if began_s is None:
        return Span(duration_s=duration_s)
    return Span(
        first_t=began_s - zone_s,
        last_t=max(began_s + duration_s, last_s or began_s) - zone_s,
        duration_s=duration_s,
        source=(ATTEMPT_FILES.train_log if start_s is None else ATTEMPT_FILES.launcher_log).name,
    )


def is_original(folder: Path) -> bool:
    """Whether the original driver wrote the folder: its manifest, or run folders as it leaves them, and no plan or attempt of ours."""
    ours = CampaignPaths(folder)
    if not folder.is_dir() or ours.plan.exists() or any(ours.plans.glob("*.json")) or ours.runs() or RunPaths(folder).attempts():
        return False
    return any(map(is_original_manifest, manifests_of(folder))) or any(map(_starts_with_meta, run_folders(folder)))


def run_folders(folder: Path) -> list[Path]:
    translated = OriginalPaths(folder).translated
    children = sorted(child for child in folder.iterdir() if child.is_dir() and child != translated)
    return [child for child in children if AttemptPaths(child).launcher_log.is_file() or AttemptPaths(child).train_log.is_file()]


def source_marks(folder: Path) -> dict[str, str]:
    """Size and mtime of every file that is read, by its path in the folder: enough to see whether a translation is current."""
    paths = OriginalPaths(folder)
    files = [*manifests_of(folder), paths.summary_json, paths.host_telemetry]
    for run in map(AttemptPaths, run_folders(folder)):
        files += [run.launcher_log, run.train_log, run.gpu_telemetry, run.host_telemetry, run.run_context]
    marks = {}
    for path in files:
        with contextlib.suppress(OSError):
            found = path.stat()
            marks[str(path.relative_to(folder))] = f"{found.st_size}:{found.st_mtime_ns}"
    return marks


def _starts_with_meta(run: Path) -> bool:
    head = read_lines(AttemptPaths(run).launcher_log, max_bytes=HEAD_BYTES).lines[:1]
    return [line.strip() for line in head] == [META]


@dataclass(frozen=True, kw_only=True)
class RunLogs:
    """Attempts of one run, from its logs and rows."""

    attempts: tuple[OriginalAttempt, ...]
    """Oldest first."""
    launcher: TextFile = field(default_factory=TextFile)
    train: TextFile = field(default_factory=TextFile)

    @property
    def newest(self) -> OriginalAttempt:
        return self.attempts[-1]

    @property
    def counting(self) -> OriginalAttempt | None:
        """The newest attempt that ended (an interrupted one left no row); None without attempts."""
        ended = [attempt for attempt in self.attempts if attempt.row is not None]
        return next(reversed(ended or self.attempts), None)


@dataclass(frozen=True, kw_only=True)
class OriginalRun(RunLogs):
    """One run, without its samples."""

    group: str
    repeat: int
    folder: Path | None
    """Its folder; None if missing."""

    @property
    def name(self) -> str:
        return f"{self.group}_r{self.repeat}"


def read_runs(folder: Path, rows: Sequence[Row]) -> tuple[list[OriginalRun], list[str]]:
    """Runs with rows in the rows' order, then those without one; and the names of run folders that belong to no known run."""
    known = by_run(rows)
    runs = [_read_run(key, _folder_of(folder, own), own) for key, own in known.items()]
    taken = {run.folder for run in runs}
    strays = []
    for unclaimed in (path for path in run_folders(folder) if path not in taken):
        key = _key_in_meta(unclaimed)
        if key is None or key in known:
            strays.append(unclaimed.name)
        else:
            known[key] = []
            runs.append(_read_run(key, unclaimed, []))
    return [run for run in runs if run.attempts], strays


def _folder_of(folder: Path, rows: Sequence[Row]) -> Path | None:
    """The run's folder. Of the paths in a row, from the machine that wrote it, only the last part counts; else group and repeat."""
    names = [PurePosixPath(row.cells.get("run_dir", "")).name for row in reversed(rows)]
    candidates = [folder / name for name in (*names, rows[-1].run) if NAME.fullmatch(name)]
    return next((path for path in candidates if path.is_dir()), None)


def _key_in_meta(folder: Path) -> RunKey | None:
    for block in reversed(read_blocks(read_lines(AttemptPaths(folder).launcher_log).lines)):
        group, repeat = block.meta.get("group", ""), whole(block.meta.get("repeat"))
        if NAME.fullmatch(group) and repeat is not None and 0 < repeat <= MAX_REPEATS:
            return group, repeat
    return None


def read_run_logs(folder: Path | None, rows: Sequence[Row]) -> RunLogs:
    """The attempts of one run, from its folder (None where it is missing) and all its rows."""
    # A row that was spilled while the disk failed may have been merged back twice.
    rows = [row for index, row in enumerate(rows) if not (row.is_success and row in rows[:index])]
    if folder is None:
        return RunLogs(attempts=tuple(pair_attempts(rows, [], [])))
    paths = AttemptPaths(folder)
    launcher, train = read_lines(paths.launcher_log), read_lines(paths.train_log)
    blocks = read_blocks(launcher.lines)
    starts = [start for block in blocks if (start := block.start_local_s) is not None]
    attempts = pair_attempts(rows, split_attempts(train.whole_lines, starts), blocks)
    return RunLogs(attempts=tuple(attempts), launcher=launcher, train=train)


def _read_run(key: RunKey, folder: Path | None, rows: Sequence[Row]) -> OriginalRun:
    logs = read_run_logs(folder, rows)
    return OriginalRun(group=key[0], repeat=key[1], folder=folder, attempts=logs.attempts, launcher=logs.launcher, train=logs.train)
