"""The runs of a folder of the original scripts: rows and logs put together.

In: the folder and the rows of its manifests. Out: one `OriginalRun` for each run that has a row, or a folder whose META block says whose
it is, with its attempts. Paths in a row are those of the machine that wrote it: only their last part counts, and is looked for in the
folder itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from seatrial.collect.original.launcher_log import read_blocks
from seatrial.collect.original.manifest_rows import MOST_REPEATS, NAME, Row, whole
from seatrial.collect.original.pairing import OriginalAttempt, pair_attempts
from seatrial.collect.original.sources import run_folders
from seatrial.collect.original.text_lines import TextLines, read_lines
from seatrial.collect.original.train_log import split_attempts
from seatrial.paths import AttemptPaths

Key = tuple[str, int]
"""Group and repeat."""


@dataclass(frozen=True, kw_only=True)
class OriginalRun:
    """One run: all that its folder and its rows tell, samples left aside."""

    group: str
    repeat: int
    folder: Path | None
    """None where it is not there."""
    attempts: tuple[OriginalAttempt, ...]
    """Oldest first."""
    launcher: TextLines = field(default_factory=TextLines)
    train: TextLines = field(default_factory=TextLines)

    @property
    def name(self) -> str:
        return f"{self.group}_r{self.repeat}"

    @property
    def newest(self) -> OriginalAttempt:
        return self.attempts[-1]


@dataclass(frozen=True, kw_only=True)
class OriginalRuns:
    """All runs, and the folders that nobody can tell whose they are."""

    runs: tuple[OriginalRun, ...]
    strays: tuple[str, ...] = ()


def read_runs(folder: Path, rows: Sequence[Row]) -> OriginalRuns:
    """Runs with rows in the rows' order, then those without one."""
    by_run: dict[Key, list[Row]] = {}
    for row in rows:
        own = by_run.setdefault((row.group, row.repeat), [])
        # A row that was kept elsewhere while the disk failed may have been merged back beside itself.
        if not (row.is_success and row in own):
            own.append(row)
    runs = [_run(key, _folder_of(folder, own), own) for key, own in by_run.items()]
    taken = {run.folder for run in runs}
    strays = []
    for unclaimed in (path for path in run_folders(folder) if path not in taken):
        key = _whose(unclaimed)
        if key is None or key in by_run:
            strays.append(unclaimed.name)
        else:
            by_run[key] = []
            runs.append(_run(key, unclaimed, []))
    return OriginalRuns(runs=tuple(run for run in runs if run.attempts), strays=tuple(strays))


def _folder_of(folder: Path, rows: Sequence[Row]) -> Path | None:
    """The run's folder here: under the name that a row gives it, else under that of its group and repeat."""
    named = [PurePosixPath(row.cells.get("run_dir", "")).name for row in reversed(rows)]
    candidates = [folder / name for name in (*named, rows[-1].run) if NAME.fullmatch(name)]
    return next((path for path in candidates if path.is_dir()), None)


def _whose(folder: Path) -> Key | None:
    """Group and repeat as the newest META block says."""
    for block in reversed(read_blocks(read_lines(AttemptPaths(folder).launcher_log).lines)):
        group, repeat = block.meta.get("group", ""), whole(block.meta.get("repeat"))
        if NAME.fullmatch(group) and repeat is not None and 0 < repeat <= MOST_REPEATS:
            return group, repeat
    return None


def _run(key: Key, folder: Path | None, rows: Sequence[Row]) -> OriginalRun:
    if folder is None:
        return OriginalRun(group=key[0], repeat=key[1], folder=None, attempts=tuple(pair_attempts(rows, [], [])))
    paths = AttemptPaths(folder)
    launcher, train = read_lines(paths.launcher_log), read_lines(paths.train_log)
    blocks = read_blocks(launcher.lines)
    starts = [start for block in blocks if (start := block.start_local_s) is not None]
    attempts = pair_attempts(rows, split_attempts(train.lines, starts), blocks)
    return OriginalRun(group=key[0], repeat=key[1], folder=folder, attempts=tuple(attempts), launcher=launcher, train=train)


def known_zones_s(runs: Sequence[OriginalRun]) -> Iterator[float]:
    """Zones that the META blocks themselves name, newest attempts of each run first."""
    for run in runs:
        zones = (attempt.block.zone_s for attempt in reversed(run.attempts) if attempt.block)
        yield from (zone_s for zone_s in zones if zone_s is not None)
