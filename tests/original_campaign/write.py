"""The folder itself: every run and attempt laid out in time, and written with the oddities that were asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from tests.original_campaign.logs import launcher_lines, train_lines
from tests.original_campaign.manifest import MANIFEST_COLUMNS, OLD_COLUMNS, manifest_row
from tests.original_campaign.runs import BETWEEN_RUNS_S, ELSEWHERE, FIRST_START, Laid, OriginalRun, duration_s, sweep_run
from tests.original_campaign.samples import gpu_lines, host_lines, sampler_lines


def write_original_campaign(
    root: Path,
    *runs: OriginalRun,
    columns: Sequence[str] = MANIFEST_COLUMNS,
    torn_line: bool = False,
    crlf: bool = False,
    bom: bool = False,
    manifest: bool = True,
    backup_rows: Sequence[OriginalRun] = (),
    own_tables: bool = False,
    tail_points: int = 20,
    baseline_group: str = "old_like",
    root_host_telemetry: bool = False,
    elsewhere: str = ELSEWHERE,
) -> Path:
    """Write the folder and give it back.

    `torn_line` ends the manifest in the middle of a row. `backup_rows` are runs whose rows (not folders) lie in a manifest that the driver
    set aside as `run_manifest.tsv.bak_<time>`, with OLD_COLUMNS. `own_tables` adds the summariser's own summary.json, summary.md and
    per_run_metrics.csv. `root_host_telemetry` adds the hand-made sampler's file at the root. `elsewhere` is where the paths in the
    files say that the folder lies; "" for where it does.
    """
    root.mkdir(parents=True, exist_ok=True)
    laid = _laid_out(runs or (sweep_run(0, 128), sweep_run(0, 160)))
    stated = elsewhere or str(root)
    if manifest:
        _write_manifest(root / "run_manifest.tsv", laid, columns, stated, torn_line=torn_line, crlf=crlf, bom=bom)
    if backup_rows:
        _write_manifest(root / "run_manifest.tsv.bak_20260217_120000", _laid_out(backup_rows), OLD_COLUMNS, stated)
    for run, starts in laid:
        _write_run(root, run, starts, stated, crlf=crlf, bom=bom)
    if root_host_telemetry:
        _write(root / "host_telemetry.csv", sampler_lines(laid), crlf=crlf, bom=bom)
    if own_tables:
        _write_own_tables(root, laid, stated, tail_points, baseline_group)
    return root


def _laid_out(runs: Sequence[OriginalRun]) -> Laid:
    """Every attempt's start: first attempts one after another, then the second ones, as a driver that is started again makes them."""
    starts: list[list[datetime]] = [[] for _ in runs]
    now = FIRST_START
    for number in range(max(len(run.attempts) for run in runs)):
        for run, own in zip(runs, starts, strict=True):
            if number < len(run.attempts):
                own.append(now)
                now += timedelta(seconds=duration_s(run.attempts[number]) + BETWEEN_RUNS_S)
    return list(zip(runs, starts, strict=True))


def _write(path: Path, lines: Sequence[str], *, crlf: bool = False, bom: bool = False, torn: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    end = "\r\n" if crlf else "\n"
    text = ("\ufeff" if bom else "") + "".join(f"{line}{end}" for line in lines) + torn
    path.write_bytes(text.encode())


def _write_manifest(
    path: Path, laid: Laid, columns: Sequence[str], stated: str, *, torn_line: bool = False, crlf: bool = False, bom: bool = False
) -> None:
    rows = sorted(
        (start, manifest_row(run, attempt, stated))
        for run, starts in laid
        for start, attempt in zip(starts, run.attempts, strict=True)
        if attempt.has_row
    )
    lines = ["\t".join(columns), *("\t".join(dict(row).get(name, "") for name in columns) for _, row in rows)]
    torn = lines[-1][: len(lines[-1]) // 3] if torn_line else ""
    _write(path, lines, crlf=crlf, bom=bom, torn=torn)


def _write_run(root: Path, run: OriginalRun, starts: Sequence[datetime], stated: str, *, crlf: bool, bom: bool) -> None:
    folder = root / run.name
    folder.mkdir(exist_ok=True)
    started = list(zip(starts, run.attempts, strict=True))
    if run.launcher_log:
        blocks = [launcher_lines(run, attempt, start, stated) for start, attempt in started]
        kept = blocks if run.launcher_appended else blocks[-1:]
        _write(folder / "launcher.log", [line for block in kept for line in block], crlf=crlf, bom=bom)
    lines = [line for start, attempt in started for line in train_lines(run, attempt, start)]
    if run.train_log and lines:
        _write(folder / "train.log", lines, crlf=crlf, bom=bom)
    start, attempt = started[-1]
    for name, rows in (("gpu_telemetry.csv", gpu_lines(run, start, attempt)), ("host_telemetry.csv", host_lines(run, start, attempt))):
        if rows:
            _write(folder / name, rows, crlf=crlf, bom=bom)


def _write_own_tables(root: Path, laid: Laid, stated: str, tail_points: int, baseline_group: str) -> None:
    """What the original summariser left, as far as anybody reads it back."""
    summary: Mapping[str, object] = {
        "generated_at": "2026-02-18T20:00:00",
        "output_root": stated,
        "tail_points": tail_points,
        "baseline_group": baseline_group,
        "groups": [],
        "runs": [],
        "skipped_runs": [],
    }
    (root / "summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    (root / "summary.md").write_text("# Stage1 Bench Summary\n", encoding="utf-8")
    rows = [f"{run.mode},{run.group},{run.repeat},{stated}/{run.name}" for run, _ in laid]
    _write(root / "per_run_metrics.csv", ["mode,group,repeat,run_dir", *rows])
    _write(root / "driver.log", ["[INFO] Output root: " + stated])
