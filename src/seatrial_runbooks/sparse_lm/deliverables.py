"""The deliverables of a validation. In: the output folder after its phases. Out: OUT/deliverables with the bucket and fused tables, the
acceptance table, the snapshot, the files of every run, and an index of all of them.

Tables: one row a run (mean and standard deviation of toks_per_s over its last 50 steps, n, window, path), one a group (mean over its runs,
standard deviation between them).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from seatrial.core import tables
from seatrial.core.errors import UsageError
from seatrial.core.files import write_json, write_text
from seatrial_runbooks.sparse_lm.acceptance import Row, as_markdown, attempts
from seatrial_runbooks.sparse_lm.phases import ARTIFACTS, PHASES, Target
from seatrial_runbooks.sparse_lm.training_csv import DEFAULT_STEPS, Window, last_window

FOLDER = "deliverables"
RUN_FILES = (
    "training.csv",
    "val.csv",
    "k_stats.csv",
    "env.json",
    "metrics.json",
    "heartbeat_rank*.jsonl",
    "mem_*",
    "sdpa_audit.*",
    "profile_summary.txt",
    ".HALT",
    ".anomaly_type",
    "gate_collapse_details.json",
)
TABLES = {"buckets": "bucket_table", "fused": "fused_table"}
COLUMNS = ("group", "runs", "mean_toks_per_s", "stdev_between_runs", "n_per_run", "window", "paths")


def write_deliverables(target: Target, rows: Sequence[Row]) -> Path:
    """Write the folder anew; its index."""
    folder = target.out / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written: list[tuple[str, str]] = []
    for phase, name in TABLES.items():
        found = _write_table(target, phase, folder / name)
        written += [(path.name, f"{phase}: last {DEFAULT_STEPS} steps of every run") for path in found]
    write_text(folder / "acceptance.md", as_markdown(rows))
    write_json(folder / "acceptance.json", [dataclasses.asdict(row) for row in rows])
    written += [("acceptance.md", "every criterion"), ("acceptance.json", "the same for programs")]
    if (target.out / ARTIFACTS).is_dir():
        shutil.copytree(target.out / ARTIFACTS, folder / ARTIFACTS)
        written += [(f"{ARTIFACTS}/{path.name}", "snapshot before the first run") for path in sorted((folder / ARTIFACTS).iterdir())]
    written += _copy_logs(target, folder) + _copy_runs(target, folder)
    write_text(folder / "index.md", _index(written))
    return folder / "index.md"


def _write_table(target: Target, phase: str, stem: Path) -> list[Path]:
    """As .csv and .md; nothing where the phase has no run."""
    groups: dict[str, list[Window]] = defaultdict(list)
    for attempt in attempts(target, phase):
        try:
            window = last_window(attempt.folder / "training.csv", DEFAULT_STEPS)
        except UsageError:
            continue
        groups[attempt.folder.parent.name.rpartition("_r")[0]].append(window)
    if not groups:
        return []
    rows = [_group_row(name, windows) for name, windows in sorted(groups.items(), key=lambda item: -_mean(item[1]))]
    path = stem.with_suffix(".csv")
    tables.write_table(path, COLUMNS, rows)
    each = [f"- {window.text}" for windows in groups.values() for window in windows]
    write_text(stem.with_suffix(".md"), "\n".join([*_markdown(rows), "", "Each run:", "", *each]) + "\n")
    return [path, stem.with_suffix(".md")]


def _group_row(name: str, windows: Sequence[Window]) -> dict[str, object]:
    means = [window.mean for window in windows]
    return {
        "group": name,
        "runs": len(windows),
        "mean_toks_per_s": round(fmean(means), 1),
        "stdev_between_runs": round(stdev(means), 1) if len(means) > 1 else None,
        "n_per_run": min(window.n for window in windows),
        "window": windows[0].steps_text,
        "paths": " ".join(str(window.path) for window in windows),
    }


def _mean(windows: Sequence[Window]) -> float:
    return fmean(window.mean for window in windows)


def _markdown(rows: Sequence[dict[str, object]]) -> list[str]:
    shown = COLUMNS[:-1]
    lines = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    return [*lines, *("| " + " | ".join("" if row[name] is None else str(row[name]) for name in shown) + " |" for row in rows)]


def _copy_logs(target: Target, folder: Path) -> list[tuple[str, str]]:
    found = []
    for phase in PHASES:
        if target.log(phase.name).is_file():
            shutil.copy2(target.log(phase.name), folder)
            found.append((target.log(phase.name).name, f"output of the phase {phase.name}"))
    return found


def _copy_runs(target: Target, folder: Path) -> list[tuple[str, str]]:
    found = []
    for phase in PHASES:
        for attempt in attempts(target, phase.name):
            to = folder / "runs" / phase.name / attempt.run
            for path in sorted(path for pattern in RUN_FILES for path in attempt.folder.glob(pattern) if path.is_file()):
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, to)
                found.append((str((to / path.name).relative_to(folder)), f"{phase.name}, from {path.parent}"))
    return found


def _index(written: Sequence[tuple[str, str]]) -> str:
    lines = ["# Deliverables", "", "| file | what it is |", "|---|---|"]
    return "\n".join([*lines, *(f"| [{name}]({name}) | {what} |" for name, what in written)]) + "\n"
