"""`seatrial compare A B`: which is faster, by how much, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import WHERE, AsJson, HistoryFile
from seatrial.cli.say import people, print_json, print_lines
from seatrial.errors import RefusedError, SeatrialError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seatrial.records.comparison import Comparison, Side

EXAMPLES = (
    "seatrial compare outputs/tiny-lm-demo:mb8_nw0 outputs/tiny-lm-demo:mb16_nw0\n\n"
    "seatrial compare monday tuesday --margin 2\n\n"
    "seatrial compare history:v100-bf16 mb16_nw0 --in outputs/tiny-lm-demo\n\n"
    "seatrial compare --scaling out1x out2x out4x"
)
AMBIGUOUS = 3
WHAT, HOW = "What is compared", "How it is judged"

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SIDE...",
        help="Two sides or more, each held against the first: OUT:GROUP; OUT (its winner, or group by group with another OUT; alone: all "
        "its groups against the plan's baseline, else the winner); GROUP, after OUT or with --in; history:NAME.",
        show_default=False,
    ),
]
Inside = Annotated[
    Path | None,
    typer.Option("--in", metavar="OUT", help="The campaign of sides that are named by their group alone.", rich_help_panel=WHERE),
]
MetricName = Annotated[
    str,
    typer.Option(
        metavar="METRIC",
        help="Compare by this: throughput (samples/s, else tokens/s, steps/s, length of the run), or samples_per_s, tokens_per_s, "
        "steps_per_s, wall_p50_ms, wall_p90_over_p50, startup_s, duration_s.",
        rich_help_panel=WHAT,
    ),
]
Margin = Annotated[
    float,
    typer.Option(
        "--margin",
        metavar="PCT",
        help="A difference within this many per cent does not matter: SAME where the whole interval lies within it, FASTER or SLOWER where "
        "the interval excludes no difference and its middle lies beyond the margin, AMBIGUOUS else.",
        rich_help_panel=HOW,
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        metavar="last50|highest_mean",
        help="Also say who wins by this rule: mean and stdev of the last 50 steps; or highest mean, tie to lower variance.",
        rich_help_panel=HOW,
        show_default=False,
    ),
]
Across = Annotated[
    bool, typer.Option("--across", help="Compare sides that ran on unlike machines too; what differs is then said.", rich_help_panel=HOW)
]
Scaling = Annotated[
    bool,
    typer.Option(
        "--scaling", help="Instead: throughput over the number of GPUs of all sides, and what more would give.", rich_help_panel=WHAT
    ),
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


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("compare", epilog=EXAMPLES)(compare)


def compare(
    sides: Words = None,
    metric: MetricName = "throughput",
    scaling: Scaling = False,
    gpus: Gpus = None,
    margin: Margin = 1.0,
    preset: Preset = "",
    across: Across = False,
    inside: Inside = None,
    history: HistoryFile = None,
    json: AsJson = False,
) -> int:
    """Say whether B is FASTER than A, SLOWER, the SAME, or whether that is AMBIGUOUS, with interval, chance and what could have been seen.

    Runs made in rounds of one campaign are pairs. An interval on logs decides (paired t, else Welch); a bootstrap stands beside it, and
    several comparisons are corrected by Holm. A speed-up with a worse loss is said not to count. Nothing is written.

    Exit codes: 0 FASTER, SLOWER or SAME, 1 wrong use, 2 refused (the same runs, unlike machines, other debug settings, no metric in
    common), 3 any comparison AMBIGUOUS, or one number of GPUs only. With --json the last line then says `refused`, and why.
    """
    asked = _Asked(
        words=sides or [], metric=metric, margin=margin, preset=preset, across=across, inside=inside, history=history, as_json=json
    )
    try:
        return _scaling(asked, gpus or ()) if scaling else _compare(asked, gpus)
    except SeatrialError as error:
        if json:
            print_json({"refused": str(error), "exit_code": error.exit_code})
        raise


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What was typed."""

    words: Sequence[str]
    metric: str
    margin: float
    preset: str
    across: bool
    inside: Path | None
    history: Path | None
    as_json: bool


def _compare(asked: _Asked, gpus: Sequence[int] | None) -> int:
    from seatrial.analyse.compare import compare_pairs
    from seatrial.campaign.side_words import asked_pairs
    from seatrial.report.comparison_text import comparison_json, comparison_lines

    if gpus:
        raise UsageError("--gpus is what --scaling projects to; add --scaling, or leave it out")
    if not 0 <= asked.margin < math.inf:
        raise UsageError(f"--margin {asked.margin:g} is no difference in per cent; give 0 or more")
    meant = asked_pairs(asked.words, inside=asked.inside, history=asked.history)
    found = compare_pairs(
        meant.pairs, metric=asked.metric, margin_pct=asked.margin, preset=asked.preset, across=asked.across, family=meant.family
    )
    console = people(as_json=asked.as_json)
    print_lines(console, comparison_lines(found, console.width, meant.note))
    if asked.as_json:
        print_json(comparison_json(found, [side for pair in meant.pairs for side in pair], meant.note))
    return _exit_code(found)


def _sides_of_scaling(asked: _Asked) -> list[Side]:
    """The sides of `--scaling`. Debug settings must not be mixed; machines are looked at where sizes are laid side by side."""
    from seatrial.analyse.alike import refusal
    from seatrial.campaign.side_words import scaling_sides

    sides = scaling_sides(asked.words, inside=asked.inside, history=asked.history)
    if not sides:
        raise UsageError("--scaling needs campaigns or groups on 1, 2, 4 … GPUs: name them, for example OUT1x OUT2x OUT4x")
    refused = next(filter(None, (refusal(sides[0], side, across=True) for side in sides[1:])), "")
    if refused:
        raise RefusedError(refused)
    return sides


def _scaling(asked: _Asked, gpus: Sequence[int]) -> int:
    from seatrial.analyse.scaling_families import scaling_families
    from seatrial.report.scaling_text import families_json, families_lines

    found = scaling_families(_sides_of_scaling(asked), asked.metric, gpus=gpus, across=asked.across)
    console = people(as_json=asked.as_json)
    print_lines(console, families_lines(found, console.width))
    if asked.as_json:
        print_json(families_json(found))
    return 0 if any(one.is_measured for one in found) else AMBIGUOUS


def _exit_code(found: Sequence[Comparison]) -> int:
    from seatrial.records.comparison import Relation

    return AMBIGUOUS if any(one.relation is Relation.AMBIGUOUS for one in found) else 0
