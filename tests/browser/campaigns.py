"""The campaigns that the lane looks at: one that really runs, one that is made with every table, one whose every word is hostile.

In: an empty folder. Out: its CampaignPaths, with summary.html written.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from seatrial.paths import CampaignPaths
from seatrial.records.charts import CHART_TABLES, Columns
from seatrial.records.measure import Cell
from seatrial.report.html.document import write_html
from seatrial.report.html.page_data import PageData
from tests.harness import Harness

FAILED = 2
REAL = """
name: small
workload: dummy
settings: {step_ms: 8, jitter_ratio: 0.1, warmup_steps: 5, data_wait_ms: 2, pause_every: 50, log_every: 20}
launcher: python
place: {kind: local, ranks: 2}
axes:
  micro_batch: [8, 16]
  case:
    bundles:
      usual: {loss: falls, crash_at_step: null}
      unlearned: {loss: nan, crash_at_step: null}
      broken: {loss: falls, crash_at_step: 30}
repeats: 2
steps: 120
telemetry: {gpu_s: null, host_s: 0.5}
limits: {soft_s: 2, term_s: 2}
criteria:
  - {metric: failed_runs, at_most: 0, reason: every configuration must run through}
  - {metric: loss_finite, scope: every_run}
output: out
"""


def run_real(folder: Path) -> CampaignPaths:
    """Twelve runs of the dummy workload on two ranks: four that learn, four with losses that are no numbers, four that fail."""
    harness = Harness(folder)
    harness.run("run", str(harness.plan(REAL)), code=FAILED)
    return harness.out


def write_made(folder: Path) -> CampaignPaths:
    """The made campaign of the charts' own tests, on disk as `seatrial report` leaves one."""
    from tests.unit.report.html.made_page import made_page

    return write_page(folder / "out", made_page())


def write_page(out: Path, data: PageData) -> CampaignPaths:
    """summary.json and the tables of the charts, and the page made from them."""
    paths = CampaignPaths(out)
    paths.charts.mkdir(parents=True, exist_ok=True)
    paths.summary_json.write_text(json.dumps(told_by(data)))
    for name in CHART_TABLES:
        if name in data.tables:
            write_table(paths.chart_table(name), data.tables[name])
    write_html(paths)
    return paths


def told_by(data: PageData) -> dict[str, Any]:
    """summary.json from which the tables of groups and runs are read back as they were made."""
    groups, runs = rows_of(data.tables["groups"]), rows_of(data.tables["runs"])
    figures = {str(row["run"]): row for row in runs}
    return {
        **data.summary,
        "standings": [{**row, "axes": axes_of(row)} for row in groups],
        "current_runs": [{name: row[name] for name in ("run", "group", "repeat", "outcome")} for row in runs],
        "runs": [{**row, **measured(figures[str(row["run"])])} for row in data.summary["runs"]],
    }


def axes_of(row: dict[str, Cell]) -> dict[str, Cell]:
    return {name.removeprefix("axis_"): value for name, value in row.items() if name.startswith("axis_")}


def measured(row: dict[str, Cell]) -> dict[str, Cell]:
    """The columns of per_run_metrics.csv that the page reads."""
    return {"wall_samples_per_sec": row["value"], "wall_iter_p50_ms": row["p50_ms"], "wall_p90_over_p50": row["p90_over_p50"]}


def rows_of(columns: Columns) -> list[dict[str, Cell]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write_table(path: Path, columns: Columns) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in zip(*columns.values(), strict=True))
