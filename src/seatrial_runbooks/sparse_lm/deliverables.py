"""The acceptance and the deliverables of a validation. In: the output folder of its stages. Out: the acceptance table on stdout, and
OUT/deliverables with it, the bucket and fused tables, the snapshot, the files of every run, and an index of all of them.

    python -m seatrial_runbooks.sparse_lm.deliverables --out outputs/sparse-lm/validation

Exit code 0 every criterion passed, 2 one failed, 3 one is open or not tested.

Tables: one row a group, the mean of toks_per_s over its runs and the standard deviation between them, with n, window and path of each run.
Only runs that succeeded and took all their steps count; the others are listed with the reason.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from seatrial.cli.program import exit_with
from seatrial.core import tables
from seatrial.core.errors import UsageError
from seatrial.core.files import read_json, write_json, write_text
from seatrial.core.paths import AttemptPaths
from seatrial.records.codec import from_json_or_none
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial_runbooks.command_line import StrictParser, echo, run_reporting_errors
from seatrial_runbooks.sparse_lm.acceptance import Row, Target, acceptance_rows, as_markdown, attempts, exit_code
from seatrial_runbooks.sparse_lm.training_csv import DEFAULT_STEPS, Window, last_window

FOLDER, ARTIFACTS = "deliverables", "artifacts"
EXAMPLES = """examples:
  python -m seatrial_runbooks.sparse_lm.deliverables --out outputs/sparse-lm/validation
  python -m seatrial_runbooks.sparse_lm.deliverables --cpu --out outputs/sparse-lm/validation-cpu"""
TRAINING_CSV = "training.csv"
RUN_FILES = (
    TRAINING_CSV,
    "val.csv",
    "k_stats.csv",
    "fallback_counters.csv",
    "dtypes_report.txt",
    "opt_state_mb.txt",
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
COLUMNS = ("group", "runs", "mean_toks_per_s", "stdev_between_runs", "n_per_run", "window", "left_out", "paths")


def main(argv: Sequence[str] | None = None) -> int:
    """Judge, write, print the table; the exit code."""
    return run_reporting_errors(lambda: _accept(argv))


def _accept(argv: Sequence[str] | None) -> int:
    options = StrictParser("Write the acceptance table and the deliverables of a validation.", EXAMPLES)
    options.add_argument("--out", type=Path, required=True, metavar="DIR", help="The validation's output folder.")
    options.add_argument("--cpu", action="store_true", help="The small model on the CPU was run: speed is not judged.")
    given = options.parse(argv)
    target = Target(out=given.out, cpu=given.cpu)
    rows = acceptance_rows(target)
    index = write_deliverables(target, rows)
    echo(as_markdown(rows))
    echo(f"Deliverables: {index}")
    return exit_code(rows)


def write_deliverables(target: Target, rows: Sequence[Row]) -> Path:
    """Replace the folder; returns its index."""
    folder = target.out / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written: list[tuple[str, str]] = []
    for stage, name in TABLES.items():
        found = _write_table(target, stage, folder / name)
        written += [(path.name, f"{stage}: last {DEFAULT_STEPS} steps of every run") for path in found]
    write_text(folder / "acceptance.md", as_markdown(rows))
    write_json(folder / "acceptance.json", [dataclasses.asdict(row) for row in rows])
    written += [("acceptance.md", "every criterion"), ("acceptance.json", "the same for programs")]
    if (target.out / ARTIFACTS).is_dir():
        shutil.copytree(target.out / ARTIFACTS, folder / ARTIFACTS)
        written += [(f"{ARTIFACTS}/{path.name}", "snapshot before the first run") for path in sorted((folder / ARTIFACTS).iterdir())]
    written += _copy_logs(target, folder) + _copy_runs(target, folder)
    write_text(folder / "index.md", _index(written))
    return folder / "index.md"


def _write_table(target: Target, stage: str, stem: Path) -> list[Path]:
    """Write the table as .csv and .md, if the stage has runs."""
    groups: dict[str, list[TableRun]] = defaultdict(list)
    for attempt in attempts(target, stage):
        groups[attempt.folder.parent.name.rpartition("_r")[0]].append(_table_run(attempt))
    if not groups:
        return []
    rows = sorted((_group_row(name, runs) for name, runs in groups.items()), key=lambda row: -float(row["mean_toks_per_s"] or 0))
    path = stem.with_suffix(".csv")
    tables.write_table(path, COLUMNS, rows)
    runs = [run for group in groups.values() for run in group]
    each = [f"- {run.window.text}" for run in runs if run.window is not None]
    left_out = [f"- {run.name}: {run.left_out}" for run in runs if run.window is None]
    lines = [*_markdown(rows), "", "Each run:", "", *each, *(["", "Left out:", "", *left_out] if left_out else [])]
    write_text(stem.with_suffix(".md"), "\n".join(lines) + "\n")
    return [path, stem.with_suffix(".md")]


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """One run of a table: its window, or why it does not count."""

    name: str
    window: Window | None = None
    left_out: str = ""


def _table_run(attempt: AttemptPaths) -> TableRun:
    ended = from_json_or_none(RunOutcome, read_json(attempt.outcome))
    if ended is None or ended.outcome is not Outcome.OK:
        how = f"{ended.outcome.value}: {ended.detail or ended.cause.value}" if ended else "it has no outcome"
        return TableRun(name=attempt.run, left_out=how)
    try:
        window = last_window(attempt.folder / TRAINING_CSV, DEFAULT_STEPS)
    except UsageError as error:
        return TableRun(name=attempt.run, left_out=str(error))
    steps = (read_json(attempt.spec) or {}).get("steps")
    if steps is None or window.last_step < steps or window.n < min(steps, DEFAULT_STEPS):
        of = f"{window.n} values up to step {window.last_step} of {'an unknown number' if steps is None else steps}"
        return TableRun(name=attempt.run, left_out=f"its table has {of}")
    return TableRun(name=attempt.run, window=window)


def _group_row(name: str, runs: Sequence[TableRun]) -> dict[str, Any]:
    windows = [run.window for run in runs if run.window is not None]
    means = [window.mean for window in windows]
    return {
        "group": name,
        "runs": len(windows),
        "mean_toks_per_s": round(fmean(means), 1) if means else None,
        "stdev_between_runs": round(stdev(means), 1) if len(means) > 1 else None,
        "n_per_run": "; ".join(str(window.n) for window in windows),
        "window": "; ".join(window.steps_text for window in windows),
        "left_out": "; ".join(f"{run.name} ({run.left_out})" for run in runs if run.window is None),
        "paths": " ".join(str(window.path) for window in windows),
    }


def _markdown(rows: Sequence[dict[str, object]]) -> list[str]:
    shown = COLUMNS[:-1]
    cells = [["" if row[name] is None else str(row[name]).replace("|", "\\|") for name in shown] for row in rows]
    return ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown), *("| " + " | ".join(row) + " |" for row in cells)]


def _copy_logs(target: Target, folder: Path) -> list[tuple[str, str]]:
    found = []
    for stage in target.stages():
        if target.log(stage).is_file():
            shutil.copy2(target.log(stage), folder)
            found.append((target.log(stage).name, f"output of the stage {stage}"))
    return found


def _copy_runs(target: Target, folder: Path) -> list[tuple[str, str]]:
    found = []
    for stage in target.stages():
        for attempt in attempts(target, stage):
            to = folder / "runs" / stage / attempt.run
            for path in sorted(path for pattern in RUN_FILES for path in attempt.folder.glob(pattern) if path.is_file()):
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, to)
                found.append((str((to / path.name).relative_to(folder)), f"{stage}, from {path.parent}"))
    return found


def _index(written: Sequence[tuple[str, str]]) -> str:
    lines = ["# Deliverables", "", "| file | what it is |", "|---|---|"]
    return "\n".join([*lines, *(f"| [{name}]({name}) | {what} |" for name, what in written)]) + "\n"


if __name__ == "__main__":
    exit_with(lambda: main(sys.argv[1:]))
