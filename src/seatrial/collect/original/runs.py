"""The runs of a folder of the original scripts: rows and logs put together.

In: the folder and the rows of its manifests. Out: one `OriginalRun` for each run that has a row, or a folder whose META block says whose
it is, with its attempts. Paths in a row are those of the machine that wrote it: only their last part counts, and is looked for in the
folder itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from seatrial.collect.original.cells import whole
from seatrial.collect.original.launcher_log import read_blocks
from seatrial.collect.original.manifest_rows import MOST_REPEATS, NAME, Row, RunKey, by_run
from seatrial.collect.original.pairing import OriginalAttempt, pair_attempts
from seatrial.collect.original.sources import run_folders
from seatrial.collect.original.text_lines import TextLines, read_lines
from seatrial.collect.original.train_log import split_attempts
from seatrial.paths import AttemptPaths


@dataclass(frozen=True, kw_only=True)
class RunLogs:
    """What the logs of one run and its rows tell, put together."""

    attempts: tuple[OriginalAttempt, ...]
    """Oldest first."""
    launcher: TextLines = field(default_factory=TextLines)
    train: TextLines = field(default_factory=TextLines)

    @property
    def newest(self) -> OriginalAttempt:
        return self.attempts[-1]

    @property
    def counting(self) -> OriginalAttempt | None:
        """The newest that came to an end; one that was cut short, and so left no row, does not hide it. None without attempts."""
        ended = [attempt for attempt in self.attempts if attempt.row is not None]
        return next(reversed(ended or self.attempts), None)


@dataclass(frozen=True, kw_only=True)
class OriginalRun(RunLogs):
    """One run: all that its folder and its rows tell, samples left aside."""

    group: str
    repeat: int
    folder: Path | None
    """None where it is not there."""

    @property
    def name(self) -> str:
        return f"{self.group}_r{self.repeat}"


@dataclass(frozen=True, kw_only=True)
class OriginalRuns:
    """All runs, and the folders that nobody can tell whose they are."""

    runs: tuple[OriginalRun, ...]
    strays: tuple[str, ...] = ()


def read_runs(folder: Path, rows: Sequence[Row]) -> OriginalRuns:
    """Runs with rows in the rows' order, then those without one."""
    known = by_run(rows)
    runs = [_run(key, _folder_of(folder, own), own) for key, own in known.items()]
    taken = {run.folder for run in runs}
    strays = []
    for unclaimed in (path for path in run_folders(folder) if path not in taken):
        key = _whose(unclaimed)
        if key is None or key in known:
            strays.append(unclaimed.name)
        else:
            known[key] = []
            runs.append(_run(key, unclaimed, []))
    return OriginalRuns(runs=tuple(run for run in runs if run.attempts), strays=tuple(strays))


def _folder_of(folder: Path, rows: Sequence[Row]) -> Path | None:
    """The run's folder here: under the name that a row gives it, else under that of its group and repeat."""
    named = [PurePosixPath(row.cells.get("run_dir", "")).name for row in reversed(rows)]
    candidates = [folder / name for name in (*named, rows[-1].run) if NAME.fullmatch(name)]
    return next((path for path in candidates if path.is_dir()), None)


def _whose(folder: Path) -> RunKey | None:
    """Group and repeat as the newest META block says."""
    for block in reversed(read_blocks(read_lines(AttemptPaths(folder).launcher_log).lines)):
        group, repeat = block.meta.get("group", ""), whole(block.meta.get("repeat"))
        if NAME.fullmatch(group) and repeat is not None and 0 < repeat <= MOST_REPEATS:
            return group, repeat
    return None


def read_run_logs(folder: Path | None, rows: Sequence[Row]) -> RunLogs:
    """The attempts of one run, from its folder (None where it is not there) and all its rows."""
    rows = _without_doubles(rows)
    if folder is None:
        return RunLogs(attempts=tuple(pair_attempts(rows, [], [])))
    paths = AttemptPaths(folder)
    launcher, train = read_lines(paths.launcher_log), read_lines(paths.train_log)
    blocks = read_blocks(launcher.lines)
    starts = [start for block in blocks if (start := block.start_local_s) is not None]
    attempts = pair_attempts(rows, split_attempts(train.whole_lines, starts), blocks)
    return RunLogs(attempts=tuple(attempts), launcher=launcher, train=train)


def _without_doubles(rows: Sequence[Row]) -> list[Row]:
    """A row that was kept elsewhere while the disk failed may have been merged back beside itself."""
    return [row for at, row in enumerate(rows) if not (row.is_success and row in rows[:at])]


def _run(key: RunKey, folder: Path | None, rows: Sequence[Row]) -> OriginalRun:
    logs = read_run_logs(folder, rows)
    return OriginalRun(group=key[0], repeat=key[1], folder=folder, attempts=logs.attempts, launcher=logs.launcher, train=logs.train)
