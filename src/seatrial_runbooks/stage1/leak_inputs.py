"""Inputs of the leak diagnosis: runs and campaigns by path, Seatrial's and the original's, and each run's time span.

Shared by the leak diagnosis and the jitter check of phase B, which take the same paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seatrial.collect.original.attempt_records import SampleFile, read_run_samples, read_sample_rows, zone_of_run
from seatrial.collect.original.manifests import Manifests, Row, RunKey, by_run, current_rows, newest, read_manifests
from seatrial.collect.original.runs import RunLogs, Span, read_run_logs, span_of
from seatrial.core.errors import UsageError, nearest
from seatrial.core.files import read_json
from seatrial.core.paths import AttemptPaths, CampaignPaths, RunPaths
from seatrial.core.text import join_names
from seatrial.records.codec import from_json_or_none
from seatrial.records.outcome import RunOutcome
from seatrial_runbooks.stage1.leak_series import Cells, HostFile, Points, read_host_file, read_points

LEVELS_ABOVE = 3
MAX_NAMED = 8
NO_MANIFEST = "no run_manifest.tsv above it: its columns stay empty"


class Campaign:
    """A folder with a manifest; shared files are read once."""

    def __init__(self, root: Path) -> None:
        self.paths = CampaignPaths(root)
        self.manifests: Manifests = read_manifests(root)

    @cached_property
    def runs(self) -> dict[RunKey, Row]:
        """The row of each run: the newest current one, else the newest. Groups in file order, repeats sorted."""
        groups = list(dict.fromkeys(group for group, _ in self.rows))
        ordered = sorted(self.rows, key=lambda key: (groups.index(key[0]), key[1]))
        chosen = {key: newest(current_rows(self.rows[key])) or newest(self.rows[key]) for key in ordered}
        return {key: row for key, row in chosen.items() if row is not None}

    @cached_property
    def rows(self) -> dict[RunKey, list[Row]]:
        return by_run(self.manifests.rows)

    @cached_property
    def points(self) -> Points:
        return read_points(self.paths.timing_points)

    @cached_property
    def host(self) -> HostFile:
        """The file of a sampler that ran for the whole campaign."""
        return read_host_file(AttemptPaths(self.paths.folder).host_telemetry, "campaign", restarts=False)

    @cached_property
    def host_samples(self) -> SampleFile:
        """The same file as `seatrial report` reads it, for its time zone."""
        return read_sample_rows(AttemptPaths(self.paths.folder).host_telemetry)


@dataclass(frozen=True, kw_only=True)
class LeakRun:
    output_root: str
    group: str
    folder: Path
    row: Row | None = None
    """Its row of the manifest."""
    campaign: Campaign | None = None
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> Cells:
        """Its cells of the manifest; empty without a row."""
        return {**self.row.cells, "status": self.row.status} if self.row else {}

    @property
    def is_numbered(self) -> bool:
        """Whether the tables separate attempts, as Seatrial's do; the original's files mix them."""
        return self.row is not None and self.row.attempt > 0

    @cached_property
    def logs(self) -> RunLogs:
        """Its logs as `seatrial report` reads them; Seatrial's attempts have their own folders and need no rows."""
        rows = self.campaign.rows[self.row.key] if self.campaign and self.row and not self.is_numbered else []
        return read_run_logs(self.folder, rows)

    @property
    def has_steps(self) -> bool:
        """Whether its current attempt logged a step."""
        return self.logs.counting is not None and bool(self.logs.counting.trainer_lines.steps)

    @property
    def name(self) -> str:
        """Its folder below the campaign, including the attempt if there are several."""
        return f"{self.folder.parent.name}/{self.folder.name}" if AttemptPaths(self.folder).number else self.folder.name


class RunFinder:
    """Finds the runs behind paths; each campaign is read once."""

    def __init__(self) -> None:
        self._campaigns: dict[Path, Campaign] = {}

    def runs(self, path: Path) -> list[LeakRun]:
        """All runs of a campaign, or one run."""
        if os.path.lexists(CampaignPaths(path).manifest):
            return list(self._all_runs(path))
        if _looks_like_run(path):
            return [self._one(path)]
        raise UsageError(f"{path} is neither a campaign (no run_manifest.tsv) nor a run; {_instead(path)}")

    def _campaign(self, root: Path) -> Campaign:
        resolved = root.resolve()
        if resolved not in self._campaigns:
            self._campaigns[resolved] = Campaign(root)
        return self._campaigns[resolved]

    def _all_runs(self, root: Path) -> Iterator[LeakRun]:
        campaign = self._campaign(root)
        if problem := campaign.manifests.problem:
            raise UsageError(f"{campaign.manifests.path} cannot be used: {problem}; give the run folders instead")
        for row in campaign.runs.values():
            folder = _folder_of(root, row)
            notes = () if folder.is_dir() else (f"its folder {folder} does not exist",)
            yield LeakRun(output_root=str(root), group=row.group, folder=folder, row=row, campaign=campaign, notes=notes)

    def _one(self, path: Path) -> LeakRun:
        at = Path(os.path.normpath(Path.cwd() / path))
        # A symlink to a run: its campaign is where the run is.
        at = at.resolve() if at.is_symlink() else at
        attempt = AttemptPaths(at).number
        run = at.parent if attempt else at
        folder = at if attempt else _with_files(at)
        root = next((above for above in list(run.parents)[:LEVELS_ABOVE] if os.path.lexists(CampaignPaths(above).manifest)), None)
        if root is None:
            return LeakRun(output_root=_shown(run.parent, path), group=run.name, folder=folder, notes=(NO_MANIFEST,))
        campaign = self._campaign(root)
        row = _row_of(campaign, run.name, attempt)
        if row is None:
            why = campaign.manifests.problem or "it has no row of this run"
            notes = (f"{campaign.manifests.path}: {why}: its columns stay empty",)
            return LeakRun(output_root=_shown(root, path), group=run.name, folder=folder, campaign=campaign, notes=notes)
        folder = folder if attempt else _folder_of(root, row, run)
        return LeakRun(output_root=_shown(root, path), group=row.group, folder=folder, row=row, campaign=campaign)


def _row_of(campaign: Campaign, name: str, attempt: int) -> Row | None:
    """The row of the run, or of one attempt."""
    if not attempt:
        return next((row for row in campaign.runs.values() if name in _names(row)), None)
    return newest([row for row in campaign.manifests.rows if name in _names(row) and row.attempt == attempt])


def _names(row: Row) -> list[str]:
    """Possible folder names of a run, the likeliest first."""
    names = (Path(row.cells.get("run_dir", "")).name, row.run)
    return [name for name in names if name not in ("", "..")]


def _folder_of(root: Path, row: Row, run: Path | None = None) -> Path:
    """Folder of the row's files: below the campaign, which may have been moved, else the recorded one."""
    recorded = [Path(row.cells["run_dir"])] if "run_dir" in row.cells else []
    candidates = [run] if run else [*(root / name for name in _names(row)), *recorded]
    found = next((folder for folder in candidates if folder.is_dir()), candidates[0])
    attempt = RunPaths(found).attempt(row.attempt).folder
    return attempt if attempt.is_dir() else _with_files(found)


def _with_files(run: Path) -> Path:
    """The run's folder, or its newest attempt's where the links to it are missing."""
    paths, attempts = AttemptPaths(run), RunPaths(run).attempts()
    has_files = any(path.is_file() for path in (paths.train_log, paths.gpu_telemetry, paths.host_telemetry))
    return run if has_files or not attempts else attempts[-1].folder


def _looks_like_run(path: Path) -> bool:
    paths = AttemptPaths(path)
    files = (paths.train_log, paths.launcher_log, paths.gpu_telemetry, paths.outcome, paths.spec)
    if any(map(os.path.lexists, files)) or RunPaths(path).attempts():
        return True
    # The hand-made sampler writes next to the runs too.
    return os.path.lexists(paths.host_telemetry) and not _runs_inside(path)


def _runs_inside(path: Path) -> list[str]:
    return sorted(child.name for child in path.iterdir() if child.is_dir() and _looks_like_run(child)) if path.is_dir() else []


def _shown(folder: Path, typed: Path) -> str:
    """Absolute or relative, as the path was typed."""
    return str(folder) if typed.is_absolute() else os.path.relpath(folder)


def _instead(path: Path) -> str:
    if path.is_dir():
        if campaigns := sorted(child.parent.name for child in path.glob("*/run_manifest.tsv")):
            return f"campaigns in it: {join_names(campaigns, MAX_NAMED)}"
        if runs := _runs_inside(path):
            return f"runs in it: {join_names(runs, MAX_NAMED)}"
        return "give the OUTPUT_ROOT folder, or one run in it"
    if path.exists():
        return "it is a file; give its folder"
    near = nearest(path.name, [child.name for child in path.parent.iterdir()]) if path.parent.is_dir() else None
    return f"it does not exist{f'; did you mean {path.parent / near}?' if near else ''}"


def run_span(run: LeakRun, campaign: Campaign) -> Span | None:
    """Time span of a run, from outcome.json or its logs; None if unknown."""
    return _by_outcome(AttemptPaths(run.folder)) or _by_logs(run, campaign)


def _by_outcome(paths: AttemptPaths) -> Span | None:
    outcome = from_json_or_none(RunOutcome, read_json(paths.outcome))
    if outcome is None or not 0 < outcome.started_t < outcome.ended_t:
        return None
    duration_s = outcome.ended_t - outcome.started_t
    return Span(first_t=outcome.started_t, last_t=outcome.ended_t, duration_s=duration_s, source=paths.outcome.name)


def _by_logs(run: LeakRun, campaign: Campaign) -> Span | None:
    samples = read_run_samples(run.folder, campaign.host_samples)
    zone_s, attempt = zone_of_run(run.logs, samples, campaign.host_samples.zone_s()), run.logs.counting
    span = span_of(attempt, zone_s) if attempt is not None and zone_s is not None else Span()
    if span.first_t is not None:
        return span
    # The samplers restart their files with every attempt.
    return samples.gpu.span() if attempt is None or attempt is run.logs.newest else None
