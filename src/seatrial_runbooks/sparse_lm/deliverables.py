"""The acceptance and the deliverables of a validation. In: the output folder after its stages. Out: the acceptance table on stdout, and
OUT/deliverables with it, the bucket and fused tables, the snapshot, the files of every run, and an index of all of them.

    python -m seatrial_runbooks.sparse_lm.deliverables --out outputs/sparse-lm/validation

Exit code 0 every criterion passed, 2 one failed, 3 one is open or not tested.

Tables: one row a run (mean and standard deviation of toks_per_s over its last 50 steps, n, window, path), one a group (mean over its runs,
standard deviation between them).
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from seatrial.cli.program import exit_with
from seatrial.core import tables
from seatrial.core.errors import UsageError
from seatrial.core.files import write_json, write_text
from seatrial_runbooks.command_line import StrictParser, echo, run_reporting_errors
from seatrial_runbooks.sparse_lm.acceptance import Row, Target, acceptance_rows, as_markdown, attempts, exit_code
from seatrial_runbooks.sparse_lm.training_csv import DEFAULT_STEPS, Window, last_window

FOLDER, ARTIFACTS = "deliverables", "artifacts"
EXAMPLES = """examples:
  python -m seatrial_runbooks.sparse_lm.deliverables --out outputs/sparse-lm/validation
  python -m seatrial_runbooks.sparse_lm.deliverables --cpu --out outputs/sparse-lm/validation-cpu"""
RUN_FILES = (
    "training.csv",
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
COLUMNS = ("group", "runs", "mean_toks_per_s", "stdev_between_runs", "n_per_run", "window", "paths")


def main(argv: Sequence[str] | None = None) -> int:
    """Judge, write, print the table; the exit code."""
    return run_reporting_errors(lambda: _accept(argv))


def _accept(argv: Sequence[str] | None) -> int:
    options = StrictParser("Write the acceptance table and the deliverables of a validation.", EXAMPLES)
    options.add_argument("--out", type=Path, required=True, metavar="DIR", help="The validation's output folder.")
    options.add_argument("--cpu", action="store_true", help="It ran the small model on the CPU: speed is not judged.")
    given = options.parse(argv)
    target = Target(out=given.out, cpu=given.cpu)
    rows = acceptance_rows(target)
    index = write_deliverables(target, rows)
    echo(as_markdown(rows))
    echo(f"Deliverables: {index}")
    return exit_code(rows)


def write_deliverables(target: Target, rows: Sequence[Row]) -> Path:
    """Write the folder anew; its index."""
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
    """As .csv and .md; nothing where the stage has no run."""
    groups: dict[str, list[Window]] = defaultdict(list)
    for attempt in attempts(target, stage):
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
