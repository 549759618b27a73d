"""Phase B acceptance: are the sentinel groups of a campaign stable enough to go on to tuning?

In: a campaign's run_manifest.tsv, Seatrial's or the original scripts', with the runs' gpu_telemetry.csv and train.log, and thresholds. Out:
a `Report`; as a command a table, then a `[PASS]` line per group if every group passes, else a `[FAIL]` line per reason. GPUs with
anti-correlated utilisation and ratios persistently above 2 fail a group whatever its figures are; where these could not be checked, an
`[INCONCLUSIVE]` line is printed and nothing passes, as with the criteria preset `stage1_stability`.

./scripts/check_phaseb_stability.py --output-root outputs/bench_4090_phaseB_diag --groups sweep_z0_mb128_nw6_pf4

group                   repeats  failed  ratio_median  ratio_max  iter_p50_ms  iter_p50_cv  telemetry_empty
sweep_z0_mb128_nw6_pf4  3        0       1.12          1.2        342.1        0.0123       0
limit                   >= 3     -       <= 1.5        <= 2.5     -            <= 0.05      <= 1
[PASS] sweep_z0_mb128_nw6_pf4: stable over 3 repeats
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

from seatrial.collect.original.manifests import (
    Manifests,
    Row,
    by_run,
    current_rows,
    flag,
    newest,
    number,
    read_manifests,
    read_one_manifest,
)
from seatrial.core.errors import INTERRUPTED, WRONG_USE, UsageError, did_you_mean, printable
from seatrial.core.tables import format_cell
from seatrial.records.measure import exceeds
from seatrial.records.verdict import Verdict
from seatrial_runbooks.command_line import StrictParser, count, limit, write_to
from seatrial_runbooks.stage1.platform_jitter import PlatformJitter, platform_jitter

RATIO, ITER_P50, TELEMETRY_EMPTY = "iter_p90_over_p50", "last_iter_ms_p50", "gpu_telemetry_empty_flag"
NOT_ENFORCED = 1.0
MIN_FOR_CV = 2


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits for a group; a figure at its limit passes."""

    min_repeats: int = 3
    max_iter_ratio_median: float = 1.5
    max_iter_ratio_max: float = 2.5
    max_iter_p50_cv: float = 0.05
    max_telemetry_empty_ratio: float = NOT_ENFORCED
    """Share of rows without GPU telemetry; at 1 it is not enforced."""


class Limit(NamedTuple):
    """One upper limit: its option, the figure it applies to, and its name in a reason and in the help."""

    option: str
    figure: str
    what: str
    metavar: str
    text: str

    @property
    def name(self) -> str:
        """Its field of `Thresholds`."""
        return self.option.removeprefix("--").replace("-", "_")


LIMITS = (
    Limit("--max-iter-ratio-median", "ratio_median", "median iter p90/p50", "RATIO", "Largest median over repeats of iter p90/p50"),
    Limit("--max-iter-ratio-max", "ratio_max", "largest iter p90/p50", "RATIO", "Largest iter p90/p50 of any repeat"),
    Limit("--max-iter-p50-cv", "iter_p50_cv", "CV of iter p50", "CV", "Largest standard deviation over mean of the repeats' iter p50"),
    Limit(
        "--max-telemetry-empty-ratio",
        "telemetry_empty_ratio",
        "share without GPU telemetry",
        "SHARE",
        "Largest share without GPU telemetry; 1: any",
    ),
)


@dataclass(frozen=True, kw_only=True)
class GroupCheck:
    """One group's figures, None where unknown, and why it fails."""

    group: str
    num_repeats: int = 0
    num_failed: int = 0
    """Repeats that never succeeded."""
    ratio_median: float | None = None
    ratio_max: float | None = None
    iter_p50_ms: float | None = None
    iter_p50_cv: float | None = None
    telemetry_empty_ratio: float | None = None
    reasons: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Platform jitter that could not be checked, and why."""


def group_check(group: str, manifests: Manifests, thresholds: Thresholds) -> GroupCheck:
    """The group's figures, and every reason why it fails."""
    runs = by_run(current_rows(_rows_of(group, manifests)))
    counted = [row for rows in runs.values() if (row := newest(_successful(rows))) is not None]
    ratios, iters_ms = _numbers(counted, RATIO), _numbers(counted, ITER_P50)
    empty = [flag(row.cells.get(TELEMETRY_EMPTY)) for row in counted]
    figures = GroupCheck(
        group=group,
        num_repeats=len(counted),
        num_failed=len(runs) - len(counted),
        ratio_median=statistics.median(ratios) if ratios else None,
        ratio_max=max(ratios, default=None),
        iter_p50_ms=statistics.fmean(iters_ms) if iters_ms else None,
        iter_p50_cv=statistics.stdev(iters_ms) / statistics.fmean(iters_ms) if len(iters_ms) >= MIN_FOR_CV else None,
        telemetry_empty_ratio=empty.count(True) / len(empty) if empty and None not in empty else None,
    )
    jitter = [(row, platform_jitter(manifests.path.parent, row.run, row.attempt)) for row in counted]
    reasons = [*_no_rows(group, manifests)] or [*_missing(counted, manifests), *_beyond(figures, thresholds), *_jitter(jitter, "found")]
    return replace(figures, reasons=tuple(reasons), unknown=tuple(_jitter(jitter, "unknown")))


def _jitter(found: Sequence[tuple[Row, PlatformJitter]], kind: str) -> Iterator[str]:
    """Each text once, with its repeats."""
    repeats: dict[str, list[str]] = {}
    for row, jitter in found:
        for text in getattr(jitter, kind):
            repeats.setdefault(text, []).append(f"r{row.repeat}")
    yield from (f"{text} in {', '.join(own)}" for text, own in repeats.items())


def _rows_of(group: str, manifests: Manifests) -> list[Row]:
    return [row for row in manifests.rows if row.group == group]


def _successful(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.is_success]


def _numbers(rows: Sequence[Row], column: str) -> list[float]:
    return [value for row in rows if (value := number(row.cells.get(column))) is not None and value > 0]


def _no_rows(group: str, manifests: Manifests) -> Iterator[str]:
    known = {row.group for row in manifests.rows}
    if group not in known:
        yield f"the manifest has no rows of this group; {did_you_mean(group, known)}"
    elif not current_rows(_rows_of(group, manifests)):
        yield "all its rows are of superseded attempts (column current); run it again"


def _missing(counted: Sequence[Row], manifests: Manifests) -> Iterator[str]:
    for column in (RATIO, ITER_P50):
        without = [row for row in counted if not _numbers([row], column)]
        if without:
            is_there = manifests.has_column(column)
            why = "the run printed too few timing lines" if is_there else "the manifest has no such column"
            yield f"no usable {column} in {', '.join(f'r{row.repeat}' for row in without)}: {why}"


def _beyond(figures: GroupCheck, thresholds: Thresholds) -> Iterator[str]:
    """A reason for each exceeded threshold, with its flag."""
    if figures.num_repeats < thresholds.min_repeats:
        yield f"successful repeats: {figures.num_repeats}, at least {thresholds.min_repeats} are needed (--min-repeats)"
    for one in LIMITS:
        value, most = getattr(figures, one.figure), getattr(thresholds, one.name)
        if value is not None and exceeds(value, most):
            yield f"{one.what} {format_figure(value)} is above {format_figure(most)} ({one.option})"
    if figures.num_repeats == 1:
        yield "the CV of iter p50 needs at least 2 repeats"
    if figures.num_repeats and figures.telemetry_empty_ratio is None and thresholds.max_telemetry_empty_ratio < NOT_ENFORCED:
        yield f"GPU telemetry is unknown ({TELEMETRY_EMPTY} is empty), but --max-telemetry-empty-ratio needs it"


def skipped_rows(manifests: Manifests, groups: Sequence[str]) -> Iterator[str]:
    """Rows that do not count, and other manifests that were read."""
    for file in manifests.set_aside:
        yield f"{file.path.name}, which the driver set aside, {f'cannot be used: {file.problem}' if file.problem else 'was read first'}"
    if manifests.num_torn:
        yield f"{_counted(manifests.num_torn, 'truncated row')} skipped"
    for group in groups:
        rows = _rows_of(group, manifests)
        counting = current_rows(rows)
        denied = sum(row.says_success and not row.is_success for row in counting)
        if denied:
            yield f"{group}: {_counted(denied, 'row')} counted as failed: status success with a failing exit code"
        if len(rows) > len(counting):
            yield f"{group}: {_counted(len(rows) - len(counting), 'row')} skipped: superseded attempts"
        older = sum(len(own) - 1 for own in by_run(counting).values() if _successful(own))
        if older:
            yield f"{group}: {_counted(older, 'other row')} skipped: older attempts of successful repeats"


def _counted(num: int, what: str) -> str:
    return f"1 {what} was" if num == 1 else f"{num} {what}s were"


def format_figure(value: float | None) -> str:
    """At most six digits; a dash for None."""
    return "-" if value is None else format_cell(float(f"{value:.6g}"))


SENTINELS = ("sweep_z0_mb128_nw6_pf4", "sweep_z1_mb160_nw6_pf2")
REMEDY = "give the campaign by --output-root or the file by --manifest"
COLUMNS = ("group", "repeats", "failed", "ratio_median", "ratio_max", "iter_p50_ms", "iter_p50_cv", "telemetry_empty")
EXAMPLES = """examples:
  ./scripts/check_phaseb_stability.py --output-root outputs/bench_4090_phaseB_diag
  ./scripts/check_phaseb_stability.py --manifest old/run_manifest.tsv --groups sweep_z0_mb128_nw6_pf4 --max-iter-p50-cv 0.1"""


@dataclass(frozen=True, kw_only=True)
class Report:
    manifest: Path
    thresholds: Thresholds
    groups: tuple[GroupCheck, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why the manifest cannot be used, if so."""

    @property
    def verdict(self) -> Verdict:
        if not self.groups or self.problem or any(group.reasons for group in self.groups):
            return Verdict.FAIL
        return Verdict.INCONCLUSIVE if any(group.unknown for group in self.groups) else Verdict.PASS


def check(root: Path, thresholds: Thresholds, *, groups: Sequence[str] = SENTINELS, manifest: Path | None = None) -> Report:
    """Check each group against the thresholds; `manifest` overrides the folder's."""
    read = read_one_manifest(manifest) if manifest else read_manifests(root)
    if read.problem:
        return Report(manifest=read.path, thresholds=thresholds, problem=read.problem)
    return Report(
        manifest=read.path,
        thresholds=thresholds,
        groups=tuple(group_check(group, read, thresholds) for group in groups),
        notes=tuple(skipped_rows(read, groups)),
    )


def report_text(report: Report, remedy: str = REMEDY) -> str:
    """The table, notes about skipped rows, then the verdict; `remedy` is the advice where the manifest cannot be used."""
    if report.problem:
        return printable(f"[FAIL] {report.manifest} cannot be used: {report.problem}; {remedy}") + "\n"
    lines = [f"manifest: {report.manifest}", *_table(report), *(f"[INFO] {note}" for note in report.notes)]
    lines += [f"[INCONCLUSIVE] {group.group}: not checked: {text}" for group in report.groups for text in group.unknown]
    lines += [f"[FAIL] {group.group}: {reason}" for group in report.groups for reason in group.reasons]
    if report.verdict is Verdict.PASS:
        lines += [f"[PASS] {group.group}: stable over {group.num_repeats} repeats" for group in report.groups]
    return printable("\n".join(lines)) + "\n"


def _table(report: Report) -> Iterator[str]:
    limits = report.thresholds
    most = (limits.max_iter_ratio_median, limits.max_iter_ratio_max, None, limits.max_iter_p50_cv, limits.max_telemetry_empty_ratio)
    rows = [COLUMNS, *(_cells(group) for group in report.groups)]
    rows.append(("limit", f">= {limits.min_repeats}", "-", *(f"<= {format_figure(value)}" if value is not None else "-" for value in most)))
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(group: GroupCheck) -> tuple[str, ...]:
    figures = (group.ratio_median, group.ratio_max, group.iter_p50_ms, group.iter_p50_cv, group.telemetry_empty_ratio)
    return (group.group, str(group.num_repeats), str(group.num_failed), *(map(format_figure, figures)))


def main(argv: Sequence[str] | None = None, *, remedy: str = REMEDY) -> int:
    """Check, print the report, and return the exit code."""
    try:
        options = _parser().parse(argv)
        if options.manifest is None and options.output_root is None:
            raise UsageError("give the campaign's folder by --output-root, or its manifest by --manifest")
        thresholds = Thresholds(**{field.name: getattr(options, field.name) for field in fields(Thresholds)})
        report = check(options.output_root or Path(), thresholds, groups=_group_names(options.groups), manifest=options.manifest)
    except UsageError as error:
        write_to(f"check_phaseb_stability.py: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        return INTERRUPTED
    write_to(report_text(report, remedy), sys.stdout)
    return report.verdict.exit_code


def _group_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"--groups is empty; expected comma-separated names, such as {','.join(SENTINELS)}")
    return names


def _parser() -> StrictParser:
    what = "Check whether groups of a campaign are stable: exit code 0 PASS, 2 FAIL or no manifest, 3 INCONCLUSIVE, 1 wrong use."
    parser = StrictParser(what, EXAMPLES)
    which, group, defaults = parser.add_argument_group("what is checked"), parser.add_argument_group("thresholds"), Thresholds()
    which.add_argument("--output-root", type=Path, metavar="DIR", help="The campaign's folder, with run_manifest.tsv in it.")
    which.add_argument("--manifest", type=Path, metavar="FILE", help="A manifest elsewhere; overrides --output-root.")
    which.add_argument("--groups", default=",".join(SENTINELS), metavar="NAMES", help="Comma-separated groups (default %(default)s).")
    repeats_help = "Successful repeats needed (default %(default)s)."
    group.add_argument("--min-repeats", type=count, default=defaults.min_repeats, metavar="N", help=repeats_help)
    for one in LIMITS:
        text = f"{one.text} (default %(default)s)."
        group.add_argument(one.option, type=limit, default=getattr(defaults, one.name), metavar=one.metavar, help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
