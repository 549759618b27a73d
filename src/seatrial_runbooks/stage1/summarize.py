"""Tables and reports of a campaign made anew, with another tail or baseline: what the original summariser did.

    ./scripts/summarize_stage1_bench.py --manifest OUT/run_manifest.tsv --output-root OUT --tail-points 10 --baseline-group old_like

    Wrote run_manifest.tsv, timing_points.csv, … summary.md in OUT
    Throughput winner: sweep_z0_mb160_nw8_pf4 (533.3 samples/s). …

In: a campaign's folder, ours or one that the original scripts wrote, with its manifest. Out: the files of `seatrial report`; of an
original folder they lie in its subfolder `seatrial`, and its own files are not touched. The plan is not changed: the next `seatrial
report` takes the tail and the baseline from there again. Exit codes: 0 done, 1 wrong use or a folder that cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.errors import SeatrialError, UsageError, did_you_mean, printable
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.exit_codes import DONE, INTERRUPTED, WRONG_USE
from seatrial.records.results import CampaignResults
from seatrial.records.run_spec import TimingSpec
from seatrial_runbooks.stage1.command_line import StrictParser, count, say

NAME = "summarize_stage1_bench.py"
EXAMPLES = """examples:
  ./scripts/summarize_stage1_bench.py --manifest outputs/bench/run_manifest.tsv --output-root outputs/bench
  ./scripts/summarize_stage1_bench.py --manifest outputs/bench/run_manifest.tsv --output-root outputs/bench --tail-points 10"""


def main(argv: Sequence[str] | None = None) -> int:
    """Do it, say where it lies, and return the exit code."""
    try:
        options = parser().parse(argv)
        check_manifest(options.manifest, options.output_root)
        results = summarise(options.output_root, tail_points=options.tail_points, baseline=options.baseline_group)
    except SeatrialError as error:
        say(f"{NAME}: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    except OSError as error:
        say(
            f"{NAME}: {printable(f'{error.filename or options.output_root}: {error.strerror or error}')}; tables are not whole\n",
            sys.stderr,
        )
        return WRONG_USE
    except KeyboardInterrupt:
        return INTERRUPTED
    say("\n".join(printable(line) for line in told(results)) + "\n", sys.stdout)
    return DONE


def summarise(root: Path, *, tail_points: int, baseline: str) -> CampaignResults:
    """Every table and report, with this tail and baseline."""
    from seatrial.campaign.original import campaign_of
    from seatrial.campaign.results import gather_results, remake

    campaign = campaign_of(root)
    if baseline != CampaignPlan.baseline:
        # The usual one is asked for by every sweep, and no sweep has it; another one was typed on purpose.
        known = [group.group for group in gather_results(CampaignPaths(campaign)).groups]
        if baseline not in known:
            raise UsageError(f"--baseline-group {baseline}: there is no such group; {did_you_mean(baseline, known)}")
    return remake(campaign, tail_points=tail_points, baseline=baseline)


def check_manifest(manifest: Path, root: Path) -> None:
    """A UsageError where the manifest is not the folder's own: attempts are read from the folder, whatever a table elsewhere says."""
    own = CampaignPaths(root).manifest
    if not root.is_dir():
        raise UsageError(f"--output-root {root}: there is no such folder; name the one that the driver wrote to")
    if _resolved(manifest) != _resolved(own):
        raise UsageError(f"--manifest {manifest} is not the manifest of --output-root {root}: give {own}, or the folder that it lies in")
    if not manifest.is_file():
        raise UsageError(
            f"--manifest {manifest}: there is no such file; without it, `seatrial report {root}` reads what lies in the folder"
        )


def _resolved(path: Path) -> Path:
    """Links followed, as far as they lead anywhere."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} leads nowhere: {error}") from error


def told(results: CampaignResults) -> Iterator[str]:
    """What was written, where, and what came out of it."""
    from seatrial.report.digest.sentences import origin, winners_sentence

    paths = CampaignPaths(Path(results.output))
    tables = (paths.manifest, paths.timing_points, paths.per_run_metrics, paths.group_summary, paths.ranked_groups, paths.summary_md)
    yield from filter(None, [origin(results)])
    yield f"Wrote {', '.join(path.name for path in tables if path.is_file())} in {results.output}"
    yield winners_sentence(results)


def parser() -> StrictParser:
    words = StrictParser("Make every table and report of a campaign anew, with this tail and this baseline.", EXAMPLES)
    words.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="The campaign's run_manifest.tsv.")
    words.add_argument("--output-root", type=Path, required=True, metavar="DIR", help="The campaign's folder, in which the manifest lies.")
    words.add_argument(
        "--tail-points",
        type=count,
        default=TimingSpec.tail_points,
        metavar="N",
        help="Last timing windows that tail columns average (default %(default)s).",
    )
    words.add_argument(
        "--baseline-group",
        default=CampaignPlan.baseline,
        metavar="GROUP",
        help="Group that speedup_vs_baseline compares with (default %(default)s).",
    )
    return words


if __name__ == "__main__":
    sys.exit(main())
