"""What a step and a start-up are made of, on a terminal: bars of letters, with a legend, that need no colour.

Phases, ms  steps 61–299: of the n steps taken apart; then the usual step (p50)
mb16_nw2  dffffffffffffffffbbbbbbbbbbbbbbbbbbbbbbbbbbsssss  52.1  49.8  n 30
of mb16_nw2: d data wait 1 %, f fwd 34 %, b bwd 55 %, s step 10 %
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from seatrial.records.charts import PHASES
from seatrial.records.events import STARTUP_PARTS
from seatrial.records.results import CampaignResults
from seatrial.report.digest.charted_runs import groups_with
from seatrial.report.digest.phases import MadeOf, phases
from seatrial.report.digest.startup import startups
from seatrial.report.numbers import short
from seatrial.report.stacked_bar import OTHER, legend, letters_of, stacked_bar
from seatrial.report.terminal.text import MOST_DETAILED, columns, fitted, heading, listed, more, names_width, spans

WIDEST = 60
NARROWEST = 8
GAP = "  "
# A start-up that is alike is told once: of the slowest, and of the quickest where that is not as slow.
ALIKE_RATIO = 1.25
# In turn, so that neighbours differ; whoever sees no colour has the letters.
STYLES = ("cyan", "magenta", "green", "yellow", "blue", "red")


def phase_shares(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """One bar a group, each as long as the others."""
    shown = phases(results, MOST_DETAILED)
    if not shown:
        return
    over = spans(made_of.window for made_of in shown)
    yield heading("Phases, ms", f"{over}: of the n steps taken apart; then the usual step (p50)")
    names = list(dict.fromkeys(name for made_of in shown for name in made_of.parts))
    figures = columns([[short(made_of.whole), short(made_of.usual), f"n {made_of.n}"] for made_of in shown])
    yield from _bars(shown, figures, sorted(names, key=lambda name: name == OTHER), width)
    if (left_out := groups_with(results, PHASES) - len(shown)) > 0:
        yield more(left_out, "groups")


def startup_shares(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """The slowest group and the quickest, from launch to the end of the first step."""
    found = sorted(startups(results), key=lambda made_of: -made_of.whole)
    if not found:
        return
    slowest, quickest = found[0], found[-1]
    differ = slowest.whole > ALIKE_RATIO * quickest.whole
    which = "; slowest and quickest group" if differ else "; the others are as quick" if len(found) > 1 else ""
    yield heading("Start-up, s", f"launch to the end of the first step, mean of n runs{which}")
    told = {name for made_of in found for name in made_of.parts}
    told_of = [slowest, quickest] if differ else [slowest]
    figures = columns([[short(made_of.whole), f"n {made_of.runs}"] for made_of in told_of])
    yield from _bars(told_of, figures, [part for part in STARTUP_PARTS if part in told], width)


def _bars(shown: Sequence[MadeOf], figures: Sequence[str], names: Sequence[str], width: int) -> Iterator[RenderableType]:
    letters = letters_of(names)
    name_width = names_width([made_of.group.group for made_of in shown], width)
    longest = max(map(len, figures))
    room = max(min(width - name_width - longest - 2 * len(GAP), WIDEST), NARROWEST)
    for made_of, numbers in zip(shown, figures, strict=True):
        drawn = _coloured(stacked_bar(made_of.parts, letters, room), letters)
        yield Text.assemble(fitted(made_of.group.group, name_width), GAP, drawn, GAP, numbers, no_wrap=True)
    first = shown[0]
    told = [f"{said}{_share(first, name)}" for name, said in legend(letters).items()]
    yield from listed(f"of {first.group.group}: " if len(shown) > 1 else "", told, width)


def _share(made_of: MadeOf, name: str) -> str:
    return f" {100 * made_of.parts[name] / made_of.whole:.0f} %" if name in made_of.parts and made_of.whole else ""


def _coloured(drawn: str, letters: Mapping[str, str]) -> Text:
    styles = {letter: STYLES[at % len(STYLES)] for at, letter in enumerate(letters.values())}
    return Text.assemble(*((letter, styles.get(letter, "")) for letter in drawn))
