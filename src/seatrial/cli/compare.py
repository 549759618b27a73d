"""`seatrial compare A B`: which is faster, by how much, and how sure that is."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from seatrial.records.comparison import Comparison, Side

EXAMPLES = (
    "seatrial compare outputs/tiny-lm-demo:mb8_nw0 outputs/tiny-lm-demo:mb16_nw0\n\n"
    "seatrial compare monday tuesday --margin 2\n\n"
    "seatrial compare history:v100-bf16 mb16_nw0 --in outputs/tiny-lm-demo\n\n"
    "seatrial compare --scaling out1x out2x out4x"
)
AMBIGUOUS = 3
WHAT, HOW, WHERE = "What is compared", "How it is judged", "Where it is looked for"

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
HistoryFile = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="The file of history rows. Default: SEATRIAL_HISTORY, else seatrial/history.jsonl among your data.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
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
    typer.Option("--margin", metavar="PCT", help="A difference within this many per cent does not matter.", min=0, rich_help_panel=HOW),
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

    Exit codes: 0 FASTER, SLOWER or SAME, 1 wrong use, 2 refused (unlike machines, other debug settings, no metric in common),
    3 any comparison AMBIGUOUS, or one number of GPUs only.
    """
    words = sides or []
    if scaling:
        return _scaling(_sides_of_scaling(words, inside, history), metric, gpus or (), as_json=json)
    from seatrial.analyse.compare import compare_pairs
    from seatrial.campaign.side_words import asked_pairs
    from seatrial.report.comparison_text import comparison_json, comparison_lines

    asked = asked_pairs(words, inside=inside, history=history)
    found = compare_pairs(asked.pairs, metric=metric, margin_pct=margin, preset=preset, across=across, family=asked.family)
    _show(lambda width: comparison_lines(found, width, asked.note), as_json=json)
    if json:
        _print_json(comparison_json(found, [side for pair in asked.pairs for side in pair], asked.note))
    return _exit_code(found)


def _sides_of_scaling(words: Sequence[str], inside: Path | None, history: Path | None) -> list[Side]:
    """The sides of `--scaling`. Machines may differ, since more GPUs are more machines; debug settings may not."""
    from seatrial.analyse.alike import refusal
    from seatrial.campaign.side_words import scaling_sides
    from seatrial.errors import RefusedError, UsageError

    sides = scaling_sides(words, inside=inside, history=history)
    if not sides:
        raise UsageError("--scaling needs campaigns or groups on 1, 2, 4 … GPUs: name them, for example OUT1x OUT2x OUT4x")
    refused = next(filter(None, (refusal(sides[0], side, across=True) for side in sides[1:])), "")
    if refused:
        raise RefusedError(refused)
    return sides


def _scaling(sides: Sequence[Side], metric: str, gpus: Sequence[int], *, as_json: bool) -> int:
    from seatrial.analyse.scaling import scaling
    from seatrial.report.scaling_text import scaling_json, scaling_lines

    found = scaling(sides, metric, gpus=gpus)
    _show(lambda width: scaling_lines(found, width), as_json=as_json)
    if as_json:
        _print_json(scaling_json(found))
    return 0 if len({point.gpus for point in found.points}) > 1 else AMBIGUOUS


def _show(lines: Callable[[int], list[str]], *, as_json: bool) -> None:
    from rich.console import Console

    people = Console(stderr=as_json)
    people.print("\n".join(lines(people.width)), markup=False, highlight=False, soft_wrap=True)


def _print_json(value: object) -> None:
    sys.stdout.write(json_text.dumps(value) + "\n")


def _exit_code(found: Sequence[Comparison]) -> int:
    from seatrial.records.comparison import Relation

    return AMBIGUOUS if any(one.relation is Relation.AMBIGUOUS for one in found) else 0
