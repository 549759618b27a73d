"""Does a run leak memory or slow down? A quick diagnosis of campaigns and single runs, ours or the original scripts'.

In: folders of campaigns, of runs or of single attempts, mixed, and thresholds. Out: one CSV on stdout, header always, one row a run; on
stderr, for each run, which files and layouts its figures are from and why a figure is absent.

python scripts/quick_leak_diagnose.py outputs/leak_4090_z0_20260218_175621
python scripts/quick_leak_diagnose.py outputs/bench/sweep_z0_mb160_nw8_pf4_r1 outputs/bench/sweep_z0_mb192_nw8_pf4_r1

A group with several repeats has a row for each, in the order of the repeats; of a run that was started several times the newest attempt
that counts has it. Folders of the original scripts are read as `seatrial report` reads them. Columns and words of the verdict are the
procedure's; `not_enough_data` is ours, for a run without any figure.
Exit codes: 0 when every path could be read, whatever the verdicts; 1 for wrong use or a path that is no campaign and no run.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.original.cells import number
from seatrial.collect.original.manifest_rows import NO_FILE
from seatrial.errors import UsageError, printable
from seatrial.paths import AttemptPaths
from seatrial.records.exit_codes import DONE, INTERRUPTED, WRONG_USE
from seatrial.tables import format_cell
from seatrial_runbooks.stage1.command_line import StrictParser, limit, say
from seatrial_runbooks.stage1.csv_rows import Cells
from seatrial_runbooks.stage1.leak_arithmetic import WARM_UP_PARTS, MemoryGrowth
from seatrial_runbooks.stage1.leak_gpu import gpu_growth
from seatrial_runbooks.stage1.leak_host import host_growth, read_host_file
from seatrial_runbooks.stage1.leak_inputs import Campaign, LeakRun, RunFinder
from seatrial_runbooks.stage1.leak_iter import IterDrift, iter_drift, log_points, points_of
from seatrial_runbooks.stage1.leak_verdict import LeakFigures, LeakThresholds, verdict
from seatrial_runbooks.stage1.run_span import run_span

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
COLUMNS = (
    "output_root", "group", *FROM_MANIFEST, "tail_iter_ms", "gpu_mem_tail_slope_max_mib_min", "gpu_mem_tail_drift_max_mib",
    "host_rss_tail_slope_mib_min", "host_rss_tail_drift_mib", "iter_tail_vs_head_pct", "verdict",
)  # fmt: skip
DECIMALS = 3
EXAMPLES = """examples:
  python scripts/quick_leak_diagnose.py outputs/leak_4090_z0_20260218_175621 > leak.csv
  python scripts/quick_leak_diagnose.py outputs/bench/sweep_z0_mb160_nw8_pf4_r1 --host-tail-slope-thr 50"""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A row for every run that was found, what was said of them, and which paths could not be used."""

    rows: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def diagnose(paths: Iterable[Path], thresholds: LeakThresholds) -> Diagnosis:
    """Every run behind the paths; one path that cannot be used does not keep the others from being read."""
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
            row, told = diagnose_run(run, thresholds)
            rows.append(row)
            notes += [f"{run.output_root}/{run.name}: {note}" for note in told]
    return Diagnosis(rows=tuple(rows), notes=tuple(notes), problems=tuple(problems))


def diagnose_run(run: LeakRun, thresholds: LeakThresholds) -> tuple[dict[str, str], tuple[str, ...]]:
    """The run's row, and in words what its figures rest on."""
    gpu, host, iters = gpu_growth(AttemptPaths(run.folder).gpu_telemetry), _host(run), _iters(run)
    figures = LeakFigures(
        gpu_slope_mib_per_min=gpu.slope_mib_per_min,
        gpu_drift_mib=gpu.drift_mib,
        host_slope_mib_per_min=host.slope_mib_per_min,
        host_drift_mib=host.drift_mib,
        iter_drift_pct=iters.drift_pct,
    )
    shown = (iters.tail_ms, *vars(figures).values())
    cells = [run.output_root, run.group, *(run.cells.get(name, "") for name in FROM_MANIFEST.values()), *map(_cell, shown)]
    row = dict(zip(COLUMNS, [*cells, verdict(figures, thresholds)], strict=True))
    return row, (*run.notes, gpu.note, host.note, iters.note, *_slow_start(run.cells), *_cut_short(run))


def _cut_short(run: LeakRun) -> list[str]:
    """Of an original folder: the samplers' files are of the newest attempt, which then is not the one that counts."""
    if run.row is None or run.is_numbered or not run.logs.attempts or run.logs.newest.row is not None:
        return []
    return ["its newest attempt left no row, so an older one counts: step times are of that one, telemetry may be of the newest"]


def _slow_start(row: Cells) -> list[str]:
    """A run that is mostly start-up grows while it loads, whatever it does later."""
    startup_s, duration_s = number(row.get("startup_sec")), number(row.get("duration_sec"))
    if startup_s is None or not duration_s or startup_s * WARM_UP_PARTS <= duration_s:
        return []
    said = f"the first step came after {startup_s:.0f} of {duration_s:.0f} s, and only the first fifth is left out as warm-up"
    return [f"growth may be that of the start: {said}; run longer"]


def _host(run: LeakRun) -> MemoryGrowth:
    """From the run's own file where that has enough samples, else from the one of the whole campaign."""
    own = host_growth(read_host_file(AttemptPaths(run.folder).host_telemetry, "run", restarts=True), None)
    if own.slope_mib_per_min is not None or run.campaign is None or run.campaign.host.problem == NO_FILE:
        return own
    shared = _shared_host(run, run.campaign)
    return shared if shared.slope_mib_per_min is not None else MemoryGrowth(note=f"{own.note}; {shared.note}")


def _shared_host(run: LeakRun, campaign: Campaign) -> MemoryGrowth:
    """From the file that covers all runs of the campaign, cut to the time of this one."""
    span = run_span(run, campaign)
    # The only run of a campaign is all that its file can be of.
    is_alone = run.row is not None and len(campaign.runs) == 1
    if span is None and not is_alone and not campaign.host.problem:
        why = "it covers all runs, and neither outcome.json nor a log nor gpu_telemetry.csv tells when this one ran"
        return MemoryGrowth(note=f"host: no figures: {campaign.host.name}: {why}")
    return host_growth(campaign.host, span)


def _iters(run: LeakRun) -> IterDrift:
    """From the campaign's table where that speaks of the attempt that counts, else from what its trainer printed."""
    paths = AttemptPaths(run.folder)
    if _ended_before_a_step(run):
        return IterDrift(note=f"iter: no figures: {paths.train_log.name} of the run: the attempt that counts ended before its first step")
    if run.campaign is not None and run.row is not None:
        points = points_of(run.row.cells, run.campaign.points)
        if points:
            return iter_drift(points, f"{run.campaign.paths.timing_points.name} of the campaign")
    attempt = run.logs.counting
    is_in_launcher_log = attempt is not None and attempt.segment is None and bool(attempt.trainer_lines.steps)
    log = paths.launcher_log if is_in_launcher_log else paths.train_log
    return iter_drift(log_points(attempt.trainer_lines.lines if attempt else ()), f"{log.name} of the run")


def _ended_before_a_step(run: LeakRun) -> bool:
    """Of an original folder, whose table has the points of every attempt and does not say which: none of them may be of this one."""
    if run.row is None or run.is_numbered or not run.logs.train.lines:
        return False
    return run.logs.counting is None or not run.logs.counting.trainer_lines.steps


def _cell(value: float | None) -> str:
    return "" if value is None else format_cell(round(value, DECIMALS))


def csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    """Header and rows."""
    target = io.StringIO()
    writer = csv.DictWriter(target, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return target.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    """Diagnose what the words ask for, say it, and return the exit code."""
    try:
        options = _parser().parse(argv)
        found = diagnose(options.paths, _thresholds(options))
    except UsageError as error:
        return _refused([str(error)])
    except KeyboardInterrupt:
        return INTERRUPTED
    say(csv_text(found.rows), sys.stdout)
    say("".join(f"[INFO] {printable(note)}\n" for note in found.notes), sys.stderr)
    return _refused(found.problems) if found.problems else DONE


def _refused(problems: Sequence[str]) -> int:
    say("".join(f"quick_leak_diagnose.py: {printable(problem)}\n" for problem in problems), sys.stderr)
    return WRONG_USE


def _thresholds(options: argparse.Namespace) -> LeakThresholds:
    return LeakThresholds(
        gpu_tail_slope_mib_per_min=options.gpu_tail_slope_thr,
        gpu_tail_drift_mib=options.gpu_tail_drift_thr,
        host_tail_slope_mib_per_min=options.host_tail_slope_thr,
        host_tail_drift_mib=options.host_tail_drift_thr,
        iter_drift_pct=options.iter_drift_thr_pct,
    )


def _parser() -> StrictParser:
    parser = StrictParser("Tell whether runs leak memory or slow down: one CSV row a run; notes go to stderr.", EXAMPLES)
    usual = LeakThresholds()
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="A campaign's folder (run_manifest.tsv in it), or a run's.")
    beyond = parser.add_argument_group("thresholds", "A figure beyond one of these makes the run suspect.")
    for name, most, what in (
        ("--gpu-tail-slope-thr", usual.gpu_tail_slope_mib_per_min, "Growth of GPU memory, MiB a minute"),
        ("--gpu-tail-drift-thr", usual.gpu_tail_drift_mib, "GPU memory at the end over that after the warm-up, MiB"),
        ("--host-tail-slope-thr", usual.host_tail_slope_mib_per_min, "Growth of the processes' host memory, MiB a minute"),
        ("--host-tail-drift-thr", usual.host_tail_drift_mib, "Host memory at the end over that after the warm-up, MiB"),
        ("--iter-drift-thr-pct", usual.iter_drift_pct, "Step time at the end over that after the warm-up, percent more"),
    ):
        beyond.add_argument(name, type=limit, default=most, metavar="N", help=f"{what} (default %(default)g).")
    return parser


if __name__ == "__main__":
    sys.exit(main())
