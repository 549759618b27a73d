"""The runs that somebody named for the leak diagnosis: campaign folders, run folders or folders of single attempts, mixed.

In: a path. Out: a `LeakRun` for each run behind it, with the folder its files lie in and its row of the manifest; or a UsageError that
says what the path is instead. Of a campaign each run comes once: groups in the order of the manifest, repeats in theirs.

A run is found in the manifest above it by the name of its folder. Without one the run stands alone: what the manifest would say is empty.
Manifests that the original driver set aside are read before the one that is written now, as `seatrial report` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seatrial.collect.original.manifest_rows import Row, RunKey, by_run, counting_rows, newest
from seatrial.collect.original.manifests import Manifests, read_manifests
from seatrial.collect.original.runs import RunLogs, read_run_logs
from seatrial.collect.original.samples import SampleFile, read_sample_rows
from seatrial.errors import UsageError, nearest
from seatrial.paths import AttemptPaths, CampaignPaths, RunPaths
from seatrial.wording import named
from seatrial_runbooks.stage1.csv_rows import Cells
from seatrial_runbooks.stage1.leak_host import HostFile, read_host_file
from seatrial_runbooks.stage1.leak_iter import Points, read_points

LEVELS_ABOVE = 3
MOST_NAMED = 8
NO_MANIFEST = "there is no run_manifest.tsv above it: columns that come from it stay empty"


class Campaign:
    """A folder with a manifest; what all its runs share is read once."""

    def __init__(self, root: Path) -> None:
        self.paths = CampaignPaths(root)
        self.manifests: Manifests = read_manifests(root)

    @cached_property
    def runs(self) -> dict[RunKey, Row]:
        """The row that speaks of each run: the newest that counts, or the newest there is. Groups as they come, repeats in order."""
        found = self.rows
        places = {group: place for place, group in enumerate(dict.fromkeys(group for group, _ in found))}
        ordered = sorted(found, key=lambda key: (places[key[0]], key[1]))
        chosen = {key: newest(counting_rows(found[key])) or newest(found[key]) for key in ordered}
        return {key: row for key, row in chosen.items() if row is not None}

    @cached_property
    def rows(self) -> dict[RunKey, list[Row]]:
        """Every row of each run."""
        return by_run(self.manifests.rows)

    @cached_property
    def points(self) -> Points:
        return read_points(self.paths.timing_points)

    @cached_property
    def host(self) -> HostFile:
        """The file of a sampler that ran beside the whole campaign."""
        return read_host_file(AttemptPaths(self.paths.folder).host_telemetry, "campaign", restarts=False)

    @cached_property
    def host_samples(self) -> SampleFile:
        """The same file as `seatrial report` reads it, for the clock that it tells."""
        return read_sample_rows(AttemptPaths(self.paths.folder).host_telemetry)


@dataclass(frozen=True, kw_only=True)
class LeakRun:
    """One run, and where what is known of it lies."""

    output_root: str
    group: str
    folder: Path
    row: Row | None = None
    """The one of the manifest that speaks of it."""
    campaign: Campaign | None = None
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> Cells:
        """What the manifest says of it; nothing where it has no row."""
        return {**self.row.cells, "status": self.row.status} if self.row else {}

    @property
    def is_numbered(self) -> bool:
        """Whether its attempts are told apart by the tables, as ours do; the original's files have all of them in one."""
        return self.row is not None and self.row.attempt > 0

    @cached_property
    def logs(self) -> RunLogs:
        """What its logs tell, as `seatrial report` reads them; an attempt of ours has a folder of its own, and needs no row for that."""
        rows = self.campaign.rows[self.row.key] if self.campaign and self.row and not self.is_numbered else []
        return read_run_logs(self.folder, rows)

    @property
    def name(self) -> str:
        """Where its files lie below the campaign, the attempt included where there are several."""
        return f"{self.folder.parent.name}/{self.folder.name}" if AttemptPaths(self.folder).number else self.folder.name


class RunFinder:
    """Finds the runs behind paths; a campaign that several of them belong to is read once."""

    def __init__(self) -> None:
        self._campaigns: dict[Path, Campaign] = {}

    def runs(self, path: Path) -> list[LeakRun]:
        """All of a campaign, or the one that is named."""
        if _is_there(CampaignPaths(path).manifest):
            return list(self._of_campaign(path))
        if _looks_like_run(path):
            return [self._one(path)]
        raise UsageError(f"{path} is neither a campaign (there is no run_manifest.tsv in it) nor a run; {_instead(path)}")

    def _campaign(self, root: Path) -> Campaign:
        where = root.resolve()
        if where not in self._campaigns:
            self._campaigns[where] = Campaign(root)
        return self._campaigns[where]

    def _of_campaign(self, root: Path) -> Iterator[LeakRun]:
        campaign = self._campaign(root)
        manifests = campaign.manifests
        if manifests.problem:
            raise UsageError(f"{manifests.path} cannot be used: {manifests.problem}; name the run folders themselves")
        for row in campaign.runs.values():
            folder = _folder_of(root, row)
            notes = () if folder.is_dir() else (f"its folder {folder} is not there",)
            yield LeakRun(output_root=str(root), group=row.group, folder=folder, row=row, campaign=campaign, notes=notes)

    def _one(self, path: Path) -> LeakRun:
        at = Path(os.path.normpath(Path.cwd() / path))
        # A link somebody made to a run: its campaign is where the run is.
        at = at.resolve() if at.is_symlink() else at
        attempt = AttemptPaths(at).number
        run = at.parent if attempt else at
        folder = at if attempt else _with_files(at)
        root = next((above for above in list(run.parents)[:LEVELS_ABOVE] if _is_there(CampaignPaths(above).manifest)), None)
        if root is None:
            return LeakRun(output_root=_shown(run.parent, path), group=run.name, folder=folder, notes=(NO_MANIFEST,))
        campaign = self._campaign(root)
        row = _row_of(campaign, run.name, attempt)
        if row is None:
            why = campaign.manifests.problem or "it has no row of this run"
            notes = (f"{campaign.manifests.path}: {why}: columns that come from it stay empty",)
            return LeakRun(output_root=_shown(root, path), group=run.name, folder=folder, campaign=campaign, notes=notes)
        folder = folder if attempt else _folder_of(root, row, run)
        return LeakRun(output_root=_shown(root, path), group=row.group, folder=folder, row=row, campaign=campaign)


def _row_of(campaign: Campaign, name: str, attempt: int) -> Row | None:
    """The run's row; of one attempt only that attempt's own."""
    if not attempt:
        return next((row for row in campaign.runs.values() if name in _names(row)), None)
    return newest([row for row in campaign.manifests.rows if name in _names(row) and row.attempt == attempt])


def _names(row: Row) -> list[str]:
    """What a run's folder may be called, the likeliest first."""
    names = (Path(row.cells.get("run_dir", "")).name, row.run)
    return [name for name in names if name not in ("", "..")]


def _folder_of(root: Path, row: Row, run: Path | None = None) -> Path:
    """Where the row's files lie: below the campaign as it lies now, which may have been moved, else where it was written."""
    written = [Path(row.cells["run_dir"])] if "run_dir" in row.cells else []
    candidates = [run] if run else [*(root / name for name in _names(row)), *written]
    found = next((folder for folder in candidates if folder.is_dir()), candidates[0])
    attempt = RunPaths(found).attempt(row.attempt).folder
    return attempt if attempt.is_dir() else _with_files(found)


def _with_files(run: Path) -> Path:
    """The run's folder, or its newest attempt's where the links to that one were lost on the way."""
    paths, attempts = AttemptPaths(run), RunPaths(run).attempts()
    has_files = any(path.is_file() for path in (paths.train_log, paths.gpu_telemetry, paths.host_telemetry))
    return run if has_files or not attempts else attempts[-1].folder


def _looks_like_run(path: Path) -> bool:
    paths = AttemptPaths(path)
    files = (paths.train_log, paths.launcher_log, paths.gpu_telemetry, paths.outcome, paths.spec)
    if any(map(_is_there, files)) or RunPaths(path).attempts():
        return True
    # The hand-made sampler's file lies beside the runs as well.
    return _is_there(paths.host_telemetry) and not _runs_inside(path)


def _runs_inside(path: Path) -> list[str]:
    return sorted(child.name for child in path.iterdir() if child.is_dir() and _looks_like_run(child)) if path.is_dir() else []


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _shown(folder: Path, typed: Path) -> str:
    """As the caller writes paths."""
    return str(folder) if typed.is_absolute() else os.path.relpath(folder)


def _instead(path: Path) -> str:
    if path.is_dir():
        campaigns = sorted(child.parent.name for child in path.glob("*/run_manifest.tsv"))
        runs = [] if campaigns else _runs_inside(path)
        what = "campaigns" if campaigns else "runs"
        return (
            f"{what} in it: {named(campaigns or runs, MOST_NAMED)}"
            if campaigns or runs
            else "name the folder that OUTPUT_ROOT was, or one run in it"
        )
    if path.exists():
        return "it is a file; name the folder it lies in"
    near = nearest(path.name, [child.name for child in path.parent.iterdir()]) if path.parent.is_dir() else None
    return f"it does not exist{f'; did you mean {path.parent / near}?' if near else ''}"
