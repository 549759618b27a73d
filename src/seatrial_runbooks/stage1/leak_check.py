"""Leak diagnosis: does a run leak memory or slow down? For campaigns and single runs, Seatrial's or the original scripts'.

In: folders of campaigns, runs or attempts, and thresholds. Out: one CSV on stdout, header always, one row per run; on stderr, for each run,
the files its figures come from and why a figure is missing.

python scripts/quick_leak_diagnose.py outputs/leak_4090_z0_20260218_175621

Each repeat has a row, by its newest current attempt. Columns and verdicts are the procedure's. Added are `not_enough_data`, for a run
without any memory figure, and the last column, which names the columns that decided. That such a run slowed down does not show a
leak: it is reported separately, on stderr. Exit codes: 0 when every path could be read, whatever the verdicts; 1 for wrong use or a path
that is neither campaign nor run.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seatrial.collect.original.manifests import NO_FILE, number
from seatrial.core.errors import DONE, INTERRUPTED, WRONG_USE, UsageError, printable
from seatrial.core.paths import AttemptPaths
from seatrial.core.tables import format_cell
from seatrial.records.measure import exceeds
from seatrial_runbooks.command_line import StrictParser, limit, write_to
from seatrial_runbooks.stage1.leak_inputs import Campaign, LeakRun, RunFinder, run_span
from seatrial_runbooks.stage1.leak_series import (
    WARM_UP_PARTS,
    Series,
    gpu_growth,
    host_growth,
    iter_drift,
    log_points,
    points_of,
    read_host_file,
)

ITER_DRIFT = "iter_drift"
CLEAN, SUSPECTED, UNKNOWN = "no_obvious_leak", "suspected_leak_or_contention", "not_enough_data"


class Figure(NamedTuple):
    """A figure of a run, suspect above its threshold."""

    column: str
    option: str
    threshold: float
    what: str


# Keys are the names of the flags.
FIGURES = {
    "gpu_tail_slope": Figure("gpu_mem_tail_slope_max_mib_min", "--gpu-tail-slope-thr", 20.0, "Growth of GPU memory, MiB a minute"),
    "gpu_tail_drift": Figure(
        "gpu_mem_tail_drift_max_mib", "--gpu-tail-drift-thr", 4096.0, "GPU memory at the end over that after the warm-up, MiB"
    ),
    "host_tail_slope": Figure(
        "host_rss_tail_slope_mib_min", "--host-tail-slope-thr", 100.0, "Growth of the processes' host memory, MiB a minute"
    ),
    "host_tail_drift": Figure(
        "host_rss_tail_drift_mib", "--host-tail-drift-thr", 8192.0, "Host memory at the end over that after the warm-up, MiB"
    ),
    ITER_DRIFT: Figure(
        "iter_tail_vs_head_pct", "--iter-drift-thr-pct", 20.0, "Step time at the end over that after the warm-up, percent more"
    ),
}
THRESHOLDS: Mapping[str, float] = {flag: figure.threshold for flag, figure in FIGURES.items()}
MEMORY_FLAGS = ("gpu_tail_slope", "gpu_tail_drift", "host_tail_slope", "host_tail_drift")
"""Memory figures: without any of them a leak can be neither found nor excluded."""
FROM_MANIFEST = {
    "status": "status",
    "duration_sec": "duration_sec",
    "attn_impl": "attn_impl_effective",
    "speech_attn_impl": "speech_attn_impl_effective",
    "text_attn_impl": "text_attn_impl_effective",
    "model_load_dtype": "model_load_dtype_effective",
    "tf32_enabled": "tf32_enabled",
    "zero_stage": "zero_stage",
}
"""Column of the diagnosis → column of the manifest."""
COLUMNS = ("output_root", "group", *FROM_MANIFEST, "tail_iter_ms", *(figure.column for figure in FIGURES.values()), "verdict", "decided_by")
"""The procedure's, then ours: the columns behind the verdict, separated by semicolons."""
DECIMALS = 3
EXAMPLES = """examples:
  python scripts/quick_leak_diagnose.py outputs/leak_4090_z0_20260218_175621 > leak.csv
  python scripts/quick_leak_diagnose.py outputs/bench/sweep_z0_mb160_nw8_pf4_r1 --host-tail-slope-thr 50"""


class Verdict(NamedTuple):
    text: str
    decided_by: tuple[str, ...] = ()
    """Columns of the figures behind it."""


def verdict(figures: Mapping[str, float], thresholds: Mapping[str, float]) -> Verdict:
    """Suspected with a figure above its threshold, else clean; neither without a memory figure."""
    if not any(flag in figures for flag in MEMORY_FLAGS):
        return Verdict(UNKNOWN)
    flags = [flag for flag, most in thresholds.items() if flag in figures and exceeds(figures[flag], most)]
    if flags:
        return Verdict(f"{SUSPECTED}({','.join(flags)})", tuple(FIGURES[flag].column for flag in flags))
    return Verdict(CLEAN, tuple(figure.column for flag, figure in FIGURES.items() if flag in figures))


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A row per run, notes about them, and paths that could not be used."""

    rows: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def diagnose(paths: Iterable[Path], thresholds: Mapping[str, float] = THRESHOLDS) -> Diagnosis:
    """Diagnose every run behind the paths; a bad path does not stop the others."""
    finder, rows, notes, problems = RunFinder(), list[Mapping[str, str]](), list[str](), list[str]()
    for path in paths:
        try:
            runs = finder.runs(path)
        except UsageError as error:
            problems.append(str(error))
            continue
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}")
            continue
        if not runs:
            notes.append(f"{path}: its manifest has no rows")
        for run in runs:
            row, run_notes = _diagnose_run(run, thresholds)
            rows.append(row)
            notes += [f"{run.output_root}/{run.name}: {note}" for note in run_notes]
    return Diagnosis(rows=tuple(rows), notes=tuple(notes), problems=tuple(problems))


def _diagnose_run(run: LeakRun, thresholds: Mapping[str, float]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The run's row, and notes about the basis of its figures."""
    gpu, host, iters = gpu_growth(AttemptPaths(run.folder).gpu_telemetry), _host_series(run), _iter_series(run)
    figures = {**gpu.figures, **host.figures, **iters.figures}
    shown = [iters.tail_ms, *(figures.get(flag) for flag in FIGURES)]
    cells = [run.output_root, run.group, *(run.cells.get(name, "") for name in FROM_MANIFEST.values())]
    cells += ["" if value is None else format_cell(round(value, DECIMALS)) for value in shown]
    found = verdict(figures, thresholds)
    row = dict(zip(COLUMNS, [*cells, found.text, ";".join(found.decided_by)], strict=True))
    slower = _slower(figures, thresholds) if found.text == UNKNOWN else []
    return row, (*run.notes, gpu.note, host.note, iters.note, *slower, *_warnings(run))


def _slower(figures: Mapping[str, float], thresholds: Mapping[str, float]) -> list[str]:
    """A note that a run without memory figures slowed down, which is not a leak."""
    drift, most = figures.get(ITER_DRIFT), thresholds[ITER_DRIFT]
    if drift is None or not exceeds(drift, most):
        return []
    return [f"slower: steps took {drift:.1f} % longer at the end, above {most:g} %; whether memory leaks is unknown"]


def _warnings(run: LeakRun) -> list[str]:
    """What may make the figures misleading."""
    warnings = []
    startup_s, duration_s = number(run.cells.get("startup_sec")), number(run.cells.get("duration_sec"))
    # Memory grows during start-up, which may outlast the dropped warm-up.
    if startup_s is not None and duration_s and startup_s * WARM_UP_PARTS > duration_s:
        warnings.append(
            f"growth may be start-up: the first step came after {startup_s:.0f} of {duration_s:.0f} s, and only a fifth is dropped; "
            "run longer"
        )
    # In an original folder telemetry is the newest attempt's, which may not be the current one.
    if run.row is not None and not run.is_numbered and run.logs.attempts and run.logs.newest.row is None:
        warnings.append("its newest attempt has no row: step times are of an older one, telemetry may be of the newest")
    return warnings


def _host_series(run: LeakRun) -> Series:
    """Host memory from the run's own file if it has enough samples, else from the campaign's."""
    own = host_growth(read_host_file(AttemptPaths(run.folder).host_telemetry, "run", restarts=True), None)
    if own.figures or run.campaign is None or run.campaign.host.problem == NO_FILE:
        return own
    shared = _shared_host_series(run, run.campaign)
    return shared if shared.figures else Series(note=f"{own.note}; {shared.note}")


def _shared_host_series(run: LeakRun, campaign: Campaign) -> Series:
    """Host memory from the campaign's file, cut to the time of this run."""
    span = run_span(run, campaign)
    # The file of a campaign with one run needs no cutting.
    is_alone = run.row is not None and len(campaign.runs) == 1
    if span is None and not is_alone and not campaign.host.problem:
        why = "it covers all runs, and no outcome.json, log or gpu_telemetry.csv has the time of this one"
        return Series(note=f"host: no figures: {campaign.host.name}: {why}")
    return host_growth(campaign.host, span)


def _iter_series(run: LeakRun) -> Series:
    """Step times from the campaign's table if it has the current attempt, else from the trainer's log."""
    paths = AttemptPaths(run.folder)
    if run.row is not None and not run.is_numbered and run.logs.train.lines and not run.has_steps:
        # An original folder's table does not separate attempts: all its points may belong to others.
        return Series(note=f"iter: no figures: {paths.train_log.name} of the run: the current attempt ended before its first step")
    if run.campaign is not None and run.row is not None:
        points = points_of(run.row.cells, run.campaign.points)
        if points:
            return iter_drift(points, f"{run.campaign.paths.timing_points.name} of the campaign")
    attempt = run.logs.counting
    is_in_launcher_log = attempt is not None and attempt.segment is None and run.has_steps
    log = paths.launcher_log if is_in_launcher_log else paths.train_log
    return iter_drift(log_points(attempt.trainer_lines.lines if attempt else ()), f"{log.name} of the run")


def csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    target = io.StringIO()
    writer = csv.DictWriter(target, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return target.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    try:
        options = vars(_parser().parse(argv))
        found = diagnose(options["paths"], {flag: options[flag] for flag in FIGURES})
    except UsageError as error:
        return _refuse([str(error)])
    except KeyboardInterrupt:
        return INTERRUPTED
    write_to(csv_text(found.rows), sys.stdout)
    write_to("".join(f"[INFO] {printable(note)}\n" for note in found.notes), sys.stderr)
    return _refuse(found.problems) if found.problems else DONE


def _refuse(problems: Sequence[str]) -> int:
    write_to("".join(f"quick_leak_diagnose.py: {printable(problem)}\n" for problem in problems), sys.stderr)
    return WRONG_USE


def _parser() -> StrictParser:
    parser = StrictParser("Check whether runs leak memory or slow down: one CSV row per run; notes go to stderr.", EXAMPLES)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="A campaign's folder (run_manifest.tsv in it), or a run's.")
    group = parser.add_argument_group("thresholds", "A figure above its threshold makes the run suspect.")
    for flag, figure in FIGURES.items():
        text = f"{figure.what} (default %(default)g)."
        group.add_argument(figure.option, dest=flag, type=limit, default=figure.threshold, metavar="N", help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
