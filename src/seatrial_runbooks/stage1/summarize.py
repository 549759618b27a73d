"""Recompute tables and reports of a campaign with another tail or baseline, like the original summariser.

    ./scripts/summarize_stage1_bench.py --manifest OUT/run_manifest.tsv --output-root OUT --tail-points 10 --baseline-group old_like

    Wrote run_manifest.tsv, timing_points.csv, … summary.md in OUT
    Throughput winner: sweep_z0_mb160_nw8_pf4 (533.3 samples/s). …

In: a campaign's folder, Seatrial's or the original scripts', with its manifest. Out: the files of `seatrial report`; for an original
folder in its subfolder `seatrial`, and its own files stay untouched. The plan does not change: the next `seatrial report` uses its tail and
baseline again. Exit codes: 0 done, 1 wrong use or a folder that cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.core.errors import DONE, INTERRUPTED, WRONG_USE, SeatrialError, UsageError, did_you_mean, printable
from seatrial.core.paths import CampaignPaths
from seatrial.records.plan import CampaignPlan, TimingSpec
from seatrial.records.results import CampaignResults
from seatrial_runbooks.command_line import StrictParser, count, write_to

NAME = "summarize_stage1_bench.py"
EXAMPLES = """examples:
  ./scripts/summarize_stage1_bench.py --manifest outputs/bench/run_manifest.tsv --output-root outputs/bench
  ./scripts/summarize_stage1_bench.py --manifest outputs/bench/run_manifest.tsv --output-root outputs/bench --tail-points 10"""


def main(argv: Sequence[str] | None = None) -> int:
    """Recompute, print what was written, and return the exit code."""
    try:
        options = parser().parse(argv)
        check_manifest(options.manifest, options.output_root)
        results = summarise(options.output_root, tail_points=options.tail_points, baseline=options.baseline_group)
    except SeatrialError as error:
        write_to(f"{NAME}: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    except OSError as error:
        write_to(
            f"{NAME}: {printable(f'{error.filename or options.output_root}: {error.strerror or error}')}; tables are incomplete\n",
            sys.stderr,
        )
        return WRONG_USE
    except KeyboardInterrupt:
        return INTERRUPTED
    write_to("\n".join(printable(line) for line in summary_lines(results)) + "\n", sys.stdout)
    return DONE


def summarise(root: Path, *, tail_points: int, baseline: str) -> CampaignResults:
    """Recompute every table and report with this tail and baseline."""
    from seatrial.results.folders import find_campaign
    from seatrial.results.recompute import gather_results, recompute

    campaign = find_campaign(root)
    if baseline != CampaignPlan.baseline:
        # The default is not a group of a sweep: only another value was given on purpose.
        known = [group.group for group in gather_results(CampaignPaths(campaign)).groups]
        if baseline not in known:
            raise UsageError(f"--baseline-group {baseline}: there is no such group; {did_you_mean(baseline, known)}")
    return recompute(campaign, tail_points=tail_points, baseline=baseline)


def check_manifest(manifest: Path, root: Path) -> None:
    """Raise where the manifest is not the folder's own: attempts are read from the folder, not from the table."""
    own = CampaignPaths(root).manifest
    if not root.is_dir():
        raise UsageError(f"--output-root {root}: there is no such folder; give the driver's OUTPUT_ROOT")
    if _resolved(manifest) != _resolved(own):
        raise UsageError(f"--manifest {manifest} is not the manifest of --output-root {root}: give {own}, or that manifest's folder")
    if not manifest.is_file():
        raise UsageError(f"--manifest {manifest}: there is no such file; without it, use `seatrial report {root}`")


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} cannot be resolved: {error}") from error


def summary_lines(results: CampaignResults) -> Iterator[str]:
    """What was written, where, and the winners."""
    from seatrial.report.view.campaign import origin_sentence, winners_sentence

    paths = CampaignPaths(Path(results.output))
    tables = (paths.manifest, paths.timing_points, paths.per_run_metrics, paths.group_summary, paths.ranked_groups, paths.summary_md)
    yield from filter(None, [origin_sentence(results)])
    yield f"Wrote {', '.join(path.name for path in tables if path.is_file())} in {results.output}"
    yield winners_sentence(results)


def parser() -> StrictParser:
    options = StrictParser("Recompute every table and report of a campaign with this tail and baseline.", EXAMPLES)
    options.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="The campaign's run_manifest.tsv.")
    options.add_argument("--output-root", type=Path, required=True, metavar="DIR", help="The campaign's folder, with the manifest in it.")
    options.add_argument(
        "--tail-points",
        type=count,
        default=TimingSpec.tail_points,
        metavar="N",
        help="Last timing windows that tail columns average (default %(default)s).",
    )
    options.add_argument(
        "--baseline-group",
        default=CampaignPlan.baseline,
        metavar="GROUP",
        help="Group that speedup_vs_baseline compares with (default %(default)s).",
    )
    return options


if __name__ == "__main__":
    sys.exit(main())
