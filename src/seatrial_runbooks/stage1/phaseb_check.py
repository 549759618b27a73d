"""Phase B acceptance: are the sentinel groups of a campaign stable enough to go on to tuning?

In: a campaign's run_manifest.tsv, ours or the original scripts', and thresholds. Out: a `Report`; as a command a table for people, then
`[PASS]` lines (one a group) where every group holds, else a `[FAIL]` line for each reason and no `[PASS]` at all.

./scripts/check_phaseb_stability.py --output-root outputs/bench_4090_phaseB_diag --groups sweep_z0_mb128_nw6_pf4

group                   repeats  failed  ratio_median  ratio_max  iter_p50_ms  iter_p50_cv  telemetry_empty
sweep_z0_mb128_nw6_pf4  3        0       1.12          1.2        342.1        0.0123       0
limit                   >= 3     -       <= 1.5        <= 2.5     -            <= 0.05      <= 1
[PASS] sweep_z0_mb128_nw6_pf4: stable over 3 repeats

Figures are over the repeats that ended well: median and maximum of iter_p90_over_p50, sample standard deviation over mean (CV) of
last_iter_ms_p50, share of rows without GPU telemetry. A repeat counts once, by its newest successful row. What cannot be computed never
passes: an empty cell, a group without rows, a CV of a single repeat. Rows are read as `seatrial report` reads them, manifests that the
driver set aside (`run_manifest.tsv.bak_<time>`) before the one that is written now; of a manifest named by --manifest, that one alone.
Exit codes: 0 PASS, 2 FAIL or no manifest, 1 wrong use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.original.manifests import read_manifests, read_one_manifest
from seatrial.errors import UsageError, printable
from seatrial.records.exit_codes import DONE, FAILED, INTERRUPTED, WRONG_USE
from seatrial_runbooks.stage1.command_line import StrictParser, count, limit, say
from seatrial_runbooks.stage1.phaseb_groups import GroupCheck, Thresholds, group_check, passed_over, shown

__all__ = ["check", "main", "report_text", "Report", "GroupCheck", "Thresholds", "SENTINELS"]

SENTINELS = ("sweep_z0_mb128_nw6_pf4", "sweep_z1_mb160_nw6_pf2")
COLUMNS = ("group", "repeats", "failed", "ratio_median", "ratio_max", "iter_p50_ms", "iter_p50_cv", "telemetry_empty")
EXAMPLES = """examples:
  ./scripts/check_phaseb_stability.py --output-root outputs/bench_4090_phaseB_diag
  ./scripts/check_phaseb_stability.py --manifest old/run_manifest.tsv --groups sweep_z0_mb128_nw6_pf4 --max-iter-p50-cv 0.1"""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found of every group that was asked for."""

    manifest: Path
    thresholds: Thresholds
    groups: tuple[GroupCheck, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why the manifest is of no use, where it is not."""

    @property
    def passed(self) -> bool:
        return bool(self.groups) and not self.problem and not any(group.reasons for group in self.groups)

    @property
    def exit_code(self) -> int:
        return DONE if self.passed else FAILED


def check(root: Path, thresholds: Thresholds, *, groups: Sequence[str] = SENTINELS, manifest: Path | None = None) -> Report:
    """Every group of `groups` against the thresholds; `manifest` where it is not the folder's own."""
    read = read_one_manifest(manifest) if manifest else read_manifests(root)
    if read.problem:
        return Report(manifest=read.path, thresholds=thresholds, problem=read.problem)
    return Report(
        manifest=read.path,
        thresholds=thresholds,
        groups=tuple(group_check(group, read, thresholds) for group in groups),
        notes=tuple(passed_over(read, groups)),
    )


def report_text(report: Report) -> str:
    """The table, what was passed over, then the verdict."""
    if report.problem:
        told = f"[FAIL] {report.manifest} cannot be used: {report.problem}; name the campaign by --output-root or the file by --manifest"
        return printable(told) + "\n"
    lines = [f"manifest: {report.manifest}", *_table(report), *(f"[INFO] {note}" for note in report.notes)]
    if report.passed:
        lines += [f"[PASS] {group.group}: stable over {group.num_repeats} repeats" for group in report.groups]
    else:
        lines += [f"[FAIL] {group.group}: {reason}" for group in report.groups for reason in group.reasons]
    return printable("\n".join(lines)) + "\n"


def _table(report: Report) -> Iterator[str]:
    limits = report.thresholds
    most = (limits.max_iter_ratio_median, limits.max_iter_ratio_max, None, limits.max_iter_p50_cv, limits.max_telemetry_empty_ratio)
    rows = [COLUMNS, *(_cells(group) for group in report.groups)]
    rows.append(("limit", f">= {limits.min_repeats}", "-", *(f"<= {shown(value)}" if value is not None else "-" for value in most)))
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(group: GroupCheck) -> tuple[str, ...]:
    figures = (group.ratio_median, group.ratio_max, group.iter_p50_ms, group.iter_p50_cv, group.telemetry_empty_ratio)
    return (group.group, str(group.num_repeats), str(group.num_failed), *(map(shown, figures)))


def main(argv: Sequence[str] | None = None) -> int:
    """Check what the words ask for, say it, and return the exit code."""
    try:
        options = _parser().parse(argv)
        report = check(
            options.output_root or Path(), _thresholds(options), groups=_group_names(options.groups), manifest=_manifest_asked_for(options)
        )
    except UsageError as error:
        say(f"check_phaseb_stability.py: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        return INTERRUPTED
    say(report_text(report), sys.stdout)
    return report.exit_code


def _manifest_asked_for(options: argparse.Namespace) -> Path | None:
    if options.manifest is None and options.output_root is None:
        raise UsageError("which campaign? give its folder by --output-root, or its manifest by --manifest")
    manifest: Path | None = options.manifest
    return manifest


def _group_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"--groups names no group; expected names with commas between them, such as {','.join(SENTINELS)}")
    return names


def _thresholds(options: argparse.Namespace) -> Thresholds:
    return Thresholds(
        min_repeats=options.min_repeats,
        max_iter_ratio_median=options.max_iter_ratio_median,
        max_iter_ratio_max=options.max_iter_ratio_max,
        max_iter_p50_cv=options.max_iter_p50_cv,
        max_telemetry_empty_ratio=options.max_telemetry_empty_ratio,
    )


def _parser() -> StrictParser:
    parser = StrictParser("Tell whether groups of a campaign are stable: exit code 0 PASS, 2 FAIL or no manifest, 1 wrong use.", EXAMPLES)
    which, most, usual = parser.add_argument_group("what is checked"), parser.add_argument_group("thresholds"), Thresholds()
    which.add_argument("--output-root", type=Path, metavar="DIR", help="The campaign's folder, with run_manifest.tsv in it.")
    which.add_argument("--manifest", type=Path, metavar="FILE", help="A manifest elsewhere or under another name; it goes first.")
    which.add_argument("--groups", default=",".join(SENTINELS), metavar="NAMES", help="Groups, with commas (default %(default)s).")
    _add(most, "--min-repeats", count, usual.min_repeats, "N", "Repeats that must have ended well")
    _add(most, "--max-iter-ratio-median", limit, usual.max_iter_ratio_median, "RATIO", "Largest median over repeats of iter p90/p50")
    _add(most, "--max-iter-ratio-max", limit, usual.max_iter_ratio_max, "RATIO", "Largest iter p90/p50 of any repeat")
    _add(most, "--max-iter-p50-cv", limit, usual.max_iter_p50_cv, "CV", "Largest standard deviation over mean of the repeats' iter p50")
    _add(
        most, "--max-telemetry-empty-ratio", limit, usual.max_telemetry_empty_ratio, "SHARE", "Largest share without GPU telemetry; 1: any"
    )
    return parser


def _add(group: argparse._ArgumentGroup, name: str, kind: Callable[[str], float], default: float, metavar: str, what: str) -> None:
    group.add_argument(name, type=kind, default=default, metavar=metavar, help=f"{what} (default %(default)s).")


if __name__ == "__main__":
    sys.exit(main())
