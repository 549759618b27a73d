"""`seatrial compare`, `seatrial diff`, `seatrial history`: groups against groups, a run against a run, and rows kept to compare with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import WHERE, AllowConfounded, AsJson, Folder, HistoryFile
from seatrial.cli.program import console_for, print_json, print_lines
from seatrial.core.errors import CampaignError, RefusedError, SeatrialError, UsageError, printable
from seatrial.records.comparison import Relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seatrial.history.rows import Row
    from seatrial.records.comparison import ComparedGroup


EXAMPLES = {
    "compare": (
        "seatrial compare outputs/tiny-lm-demo:mb1_nw0 outputs/tiny-lm-demo:mb16_nw0\n\n"
        "seatrial compare monday tuesday --margin 2\n\n"
        "seatrial compare history:v100-bf16 mb16_nw0 --in outputs/tiny-lm-demo\n\n"
        "seatrial compare --scaling out1x out2x out4x"
    ),
    "diff": (
        "seatrial diff outputs/tiny-lm-demo/mb1_nw0_r1 outputs/tiny-lm-demo/mb16_nw0_r1\n\n"
        "seatrial diff monday/mb8_r1 tuesday/mb8_r1/attempt-2 --json"
    ),
    "history": "seatrial history add outputs/tiny-lm-demo\n\nseatrial history pin 3 v100-bf16",
}
AMBIGUOUS = 3
WHAT, HOW = "What is compared", "How it is judged"

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SIDE...",
        help="The baseline, then one candidate or more: OUT:GROUP; OUT (its recommended group, or group by group with another OUT; alone: "
        "all its groups against the plan's baseline, else the recommended one); GROUP, after OUT or with --in; history:NAME.",
        show_default=False,
    ),
]
Inside = Annotated[
    Path | None,
    typer.Option("--in", metavar="OUT", help="The campaign of groups that are given by their name alone.", rich_help_panel=WHERE),
]
MetricName = Annotated[
    str,
    typer.Option(
        metavar="METRIC",
        help="Compare by this: throughput (samples/s, else tokens/s, s of audio/s, steps/s, length of the run: the first that both have "
        "and that is the same work in both), or samples_per_s, tokens_per_s, audio_s_per_s, steps_per_s, wall_p50_ms, "
        "wall_p90_over_p50, startup_s, duration_s.",
        rich_help_panel=WHAT,
    ),
]
Margin = Annotated[
    float,
    typer.Option(
        "--margin",
        metavar="PCT",
        help="Margin of differences that do not matter, in per cent. SAME: the interval is within it. FASTER, SLOWER: the interval "
        "excludes 1 and the mean is outside the margin. Otherwise AMBIGUOUS.",
        rich_help_panel=HOW,
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        metavar="last50|highest_mean",
        help="Also print the winner by this rule: mean and stdev of the last 50 steps; or highest mean, tie to lower variance.",
        rich_help_panel=HOW,
        show_default=False,
    ),
]
Across = Annotated[
    bool, typer.Option("--across", help="Compare runs of different machines too; differences are printed.", rich_help_panel=HOW)
]
Scaling = Annotated[
    bool,
    typer.Option("--scaling", help="Show throughput against the number of GPUs, with a projection.", rich_help_panel=WHAT),
]
Gpus = Annotated[
    list[int] | None,
    typer.Option(
        "--gpus",
        metavar="N",
        min=1,
        help="With --scaling: project to this many GPUs; may be repeated. Default: the next powers of two.",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]


def compare(
    sides: Names = None,
    metric: MetricName = "throughput",
    scaling: Scaling = False,
    gpus: Gpus = None,
    margin: Margin = 1.0,
    preset: Preset = "",
    across: Across = False,
    allow_confounded: AllowConfounded = False,
    inside: Inside = None,
    history: HistoryFile = None,
    json: AsJson = False,
) -> int:
    """Decide whether B is FASTER than A, SLOWER, the SAME, or AMBIGUOUS, with interval, probability and smallest detectable difference.

    Runs of the same round of one campaign are pairs. An interval on logs decides (paired t, else Welch); a bootstrap is shown beside, and
    several comparisons are corrected by Holm. A speed-up with a worse loss does not count. Nothing is written.

    Exit codes: 0 FASTER, SLOWER or SAME, 1 wrong use, 2 refused (the same runs, different machines, other debug settings, confounded, the
    same in effect, no metric in common), 3 any comparison AMBIGUOUS, or one number of GPUs only. With --json the last line then says
    `refused`, and why.
    """
    options = _Options(
        names=sides or [],
        metric=metric,
        margin=margin,
        preset=preset,
        across=across,
        allow_confounded=allow_confounded,
        inside=inside,
        history=history,
        as_json=json,
    )
    try:
        return _scaling(options, gpus or ()) if scaling else _compare(options, gpus)
    except SeatrialError as error:
        if json:
            print_json({"refused": str(error), "exit_code": error.exit_code})
        raise


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The command line."""

    names: Sequence[str]
    metric: str
    margin: float
    preset: str
    across: bool
    allow_confounded: bool
    inside: Path | None
    history: Path | None
    as_json: bool


def _compare(options: _Options, gpus: Sequence[int] | None) -> int:
    from seatrial.analyse.comparison import compare_pairs
    from seatrial.report.comparison import comparison_json, comparison_lines
    from seatrial.results.compare import resolve_pairs

    if gpus:
        raise UsageError("--gpus is what --scaling projects to; add --scaling, or leave it out")
    if not 0 <= options.margin < math.inf:
        raise UsageError(f"--margin {options.margin:g} is not a difference in per cent; give 0 or more")
    resolved = resolve_pairs(options.names, inside=options.inside, history=options.history)
    found = compare_pairs(
        resolved.pairs,
        metric=options.metric,
        margin_pct=options.margin,
        preset=options.preset,
        across=options.across,
        allow_confounded=options.allow_confounded,
        family=resolved.family,
    )
    console = console_for(as_json=options.as_json)
    print_lines(console, comparison_lines(found, console.width, resolved.note))
    if options.as_json:
        print_json(comparison_json(found, [group for pair in resolved.pairs for group in pair], resolved.note))
    return AMBIGUOUS if any(one.relation is Relation.AMBIGUOUS for one in found) else 0


def _scaling_groups(options: _Options) -> list[ComparedGroup]:
    """The groups to scale over; debug settings must not be mixed. Machines are checked where sizes are compared."""
    from seatrial.analyse.groups import why_not_comparable
    from seatrial.results.compare import resolve_scaling

    groups = resolve_scaling(options.names, inside=options.inside, history=options.history)
    if not groups:
        raise UsageError("--scaling needs campaigns or groups on 1, 2, 4 … GPUs: name them, for example OUT1x OUT2x OUT4x")
    refused = next(filter(None, (why_not_comparable(groups[0], group, across=True) for group in groups[1:])), "")
    if refused:
        raise RefusedError(refused)
    return groups


def _scaling(options: _Options, gpus: Sequence[int]) -> int:
    from seatrial.analyse.scaling import scaling_families
    from seatrial.report.comparison import families_json, families_lines

    found = scaling_families(
        _scaling_groups(options), options.metric, gpus=gpus, across=options.across, allow_confounded=options.allow_confounded
    )
    console = console_for(as_json=options.as_json)
    print_lines(console, families_lines(found, console.width))
    if options.as_json:
        print_json(families_json(found))
    return 0 if any(one.is_measured for one in found) else AMBIGUOUS


RUN_HELP = "A run's folder, OUT/<group>_r<n>, or one attempt of it; the two may be of different campaigns."
Run = Annotated[Path, typer.Argument(metavar="RUN", help=RUN_HELP, show_default=False)]


def diff(before: Run, after: Run, json: AsJson = False) -> int:
    """Show what differs between two runs: settings, environment, versions, hardware, code, outcome; and whether they may be averaged.

    Of a run with several attempts, the newest that came to its own end counts. The exit code is 0 whether they differ or not.
    """
    from seatrial.report.run_diff import diff_json, diff_lines, diff_runs
    from seatrial.results.compare_page import read_run_for_diff

    found = diff_runs(read_run_for_diff(before), read_run_for_diff(after))
    console = console_for(as_json=json)
    print_lines(console, diff_lines(found, console.width))
    if json:
        print_json(diff_json(found))
    return 0


GroupNames = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="Keep only this group; may be repeated. Default: every group with runs that count."),
]
RowNumber = Annotated[int, typer.Argument(metavar="ROW", help="The row's number, as `history list` shows it.", show_default=False)]
RowName = Annotated[str, typer.Argument(metavar="NAME", help="The name that `history:NAME` then means.", show_default=False)]


history = typer.Typer(no_args_is_help=True)


@history.command(epilog="seatrial history add outputs/tiny-lm-demo\n\nseatrial history add nightly --group mb16 --history team.jsonl")
def add(out: Folder, group: GroupNames = None, history: HistoryFile = None, json: AsJson = False) -> int:
    """Keep a campaign's groups as rows of history: figures, losses, machine and code of the counted runs. The same runs stay one row."""
    from seatrial.history import rows
    from seatrial.results.compare import comparable_groups, compared_group, full_name
    from seatrial.results.gather import read_campaign_at

    campaign = read_campaign_at(out)
    names = group or comparable_groups(campaign)
    if not names:
        raise CampaignError(f"{out} has no group with counted runs: there is nothing to keep")
    path = rows.history_path(history)
    groups = [compared_group(campaign, name, full_name(out, name)) for name in names]
    kept = [rows.add(path, compared) for compared in groups]
    _show(path, kept, rows.read_history(path).unreadable, as_json=json)
    return 0


@history.command("list", epilog="seatrial history list\n\nseatrial history list --json")
def list_rows(history: HistoryFile = None, json: AsJson = False) -> int:
    """Print every row: number, name, group, runs, throughput, when it was taken, machine, campaign."""
    from seatrial.history import rows

    path = rows.history_path(history)
    history_file = rows.read_history(path)
    _show(path, history_file.rows, history_file.unreadable, as_json=json)
    return 0


@history.command(epilog="seatrial history pin 3 v100-bf16\n\nseatrial compare history:v100-bf16 outputs/tiny-lm-demo")
def pin(row: RowNumber, name: RowName, history: HistoryFile = None) -> int:
    """Give a row a name that comparisons and criteria can use; a name that another row had moves to this one."""
    from seatrial.history import rows

    path = rows.history_path(history)
    before = rows.read_history(path).pinned(name)
    kept = rows.pin(path, row, name)
    moved = f" (before: row {before.number}, {before.compared.group})" if before and before.number != kept.number else ""
    print(printable(f"row {kept.number} ({kept.compared.group}) is history:{name}{moved}"))
    return 0


@history.command(epilog="seatrial history unpin v100-bf16\n\nseatrial history unpin v100-bf16 --history team.jsonl")
def unpin(name: RowName, history: HistoryFile = None) -> int:
    """Remove a name from its row; the row stays."""
    from seatrial.history import rows

    rows.unpin(rows.history_path(history), name)
    print(f"history:{name} removed; its row stays")
    return 0


def _show(path: Path, kept: Sequence[Row], unreadable: int, *, as_json: bool) -> None:
    from seatrial.report.comparison import history_lines

    console = console_for(as_json=as_json)
    plain = [_plain(row) for row in kept]
    print_lines(console, history_lines(plain, str(path), console.width, unreadable))
    if as_json:
        print_json({"file": str(path), "rows": plain, "unreadable_lines": unreadable})


def _plain(row: Row) -> dict[str, Any]:
    compared = row.compared
    return {
        "row": row.number,
        "names": list(row.names),
        "group": compared.group,
        "campaign": compared.campaign,
        "added_t": row.added_t,
        "taken_t": compared.taken_t,
        "runs": len(compared.runs),
        **row_throughput(compared),
        "failed_runs": compared.failed_runs,
        "machine": compared.machine,
        "code": compared.code,
        "debug": list(compared.debug),
    }


def row_throughput(compared: ComparedGroup) -> dict[str, Any]:
    """The metric that `compare` would use: the mean over the runs, and its unit."""
    from seatrial.analyse.statistics import estimate
    from seatrial.records.figures import FIGURES, THROUGHPUT

    for name in THROUGHPUT:
        values = [run.figures.get(name) for run in compared.runs]
        found = estimate(values)
        if found is not None and found.n == len(values):
            return {"metric": name, "throughput": found.mean, "unit": FIGURES[name].unit}
    return {"metric": None, "throughput": None, "unit": None}
