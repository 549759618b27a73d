"""Comparisons for people, and as one JSON value.

In: comparisons (and how the baseline was found). Out: lines no wider than the terminal, with the interval of each drawn around 1, and a
plain value with the same numbers.

mb16 against mb8: FASTER
  samples/s      mb8 1,512 ±0.6 % (5 runs)   mb16 1,561 ±0.7 % (5 runs)
  ratio          1.032   95 % 1.021 to 1.044   bootstrap 1.024 to 1.041   p 0.0007
                 ························[·····│·····]······├─────●──────┤····
  would show     1.5 % four times in five (paired t on logs, 5 pairs)
  loss           comparable: loss 2.31 against 2.30 …
mb16 has 3.2 % more samples/s than mb8 (95 % interval +2.1 % to +4.4 %; paired t on logs, 5 pairs, p = 0.0007).

│ is a ratio of 1, [ ] the 1 % that does not matter.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.records.codec import to_json
from seatrial.records.comparison import Comparison, LossVerdict, Side
from seatrial.records.measure import Estimate
from seatrial.report.interval_bars import Scale, bar
from seatrial.report.numbers import figure, margin, ratio
from seatrial.report.one_line import one_line
from seatrial.wording import count

NARROWEST = 40
LABEL = 14
INDENT = "  "
RATIO = "ratio"
APART = "   "
"""Between two figures of one line."""
WIDEST_BAR = 61
# The drawing reaches a little beyond what it holds, so that its ends can be seen.
REACH = 1.15
NO_BREAK = "\N{NO-BREAK SPACE}"
ONE_FIGURE = re.compile(r"\bp (?:[<=] )?(?=\d)|(?<=\d) %")


def comparison_lines(comparisons: Sequence[Comparison], width: int, note: str = "") -> list[str]:
    """The whole text."""
    width = max(width, NARROWEST)
    lines = [line for one in comparisons for line in (*_lines(one, width), "")]
    if any(one.ratio for one in comparisons):
        lines += [*textwrap.wrap(f"│ is a ratio of 1, [ ] the {comparisons[0].margin_pct:g} % that does not matter.", width), ""]
    if note:
        lines += [*textwrap.wrap(note, width), ""]
    # Names are what folders and files say, and those may hold what moves a cursor.
    return [one_line(line) for line in lines[:-1]]


def comparison_json(comparisons: Sequence[Comparison], sides: Sequence[Side], note: str = "") -> dict[str, Any]:
    """The same as plain values; each side with its runs, their windows and n, but without the courses of their losses."""
    return {
        "comparisons": [to_json(one) for one in comparisons],
        "sides": [_side(side) for side in {(side.name, side.campaign): side for side in sides}.values()],
        "note": note,
    }


def _side(side: Side) -> dict[str, Any]:
    plain: dict[str, Any] = to_json(side)
    for run in plain["runs"]:
        run.pop("loss")
    return plain


def _lines(one: Comparison, width: int) -> Iterator[str]:
    yield f"{one.b} against {one.a}: {one.relation.value}"
    for label, text in facts(one):
        yield from _row(label, text, width)
        if label == RATIO and one.ratio is not None:
            yield f"{INDENT}{'':{LABEL}} {drawn(one.ratio, one.margin_pct, min(width - LABEL - 3, WIDEST_BAR))}".rstrip()
    yield from _wrapped(one.reason, width)


def facts(one: Comparison) -> Iterator[tuple[str, str]]:
    """What the word rests on, each with its label."""
    yield one.unit, APART.join((f"{one.a} {_value(one.value_a)}", f"{one.b} {_value(one.value_b)}"))
    if one.ratio is not None:
        yield RATIO, APART.join(_ratio_words(one))
    if one.detectable_pct is not None:
        yield "would show", f"{_pct(one.detectable_pct)} four times in five ({one.method})"
    if one.loss is not None:
        shown = one.loss.verdict.value.upper() if one.loss.verdict is LossVerdict.WORSE else one.loss.verdict.value
        yield "loss", f"{shown}: {one.loss.reason}"
    if one.differs:
        yield "differs in", ", ".join(one.differs)
    for caution in one.cautions:
        yield "caution", caution


def _row(label: str, text: str, width: int) -> list[str]:
    first = f"{INDENT}{label:{LABEL}} "
    return _wrapped(text, width, first, " " * len(first))


def _wrapped(text: str, width: int, first: str = "", then: str = "") -> list[str]:
    """Lines of the text; what is one figure, `p < 0.0001` or `3.2 %`, is not broken."""
    bound = ONE_FIGURE.sub(lambda found: found[0].replace(" ", NO_BREAK), text)
    lines = textwrap.wrap(bound, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def _value(value: Estimate | None) -> str:
    if value is None:
        return "no run that counts"
    return " ".join(filter(None, (figure(value.mean), margin(value), f"({count(value.n, 'run')})")))


def _ratio_words(one: Comparison) -> Iterator[str]:
    assert one.ratio is not None
    yield ratio(one.ratio.mean)
    if one.ratio.low is not None and one.ratio.high is not None:
        yield f"{one.confidence * 100:.4g} % {ratio(one.ratio.low)} to {ratio(one.ratio.high)}"
    if one.bootstrap_low is not None and one.bootstrap_high is not None:
        yield f"bootstrap {ratio(one.bootstrap_low)} to {ratio(one.bootstrap_high)}"
    if one.chance is not None:
        yield f"p {'< 0.0001' if one.chance < 0.0001 else f'{one.chance:.2g}'}"


def drawn(estimate: Estimate, margin_pct: float, columns: int) -> str:
    """The interval on a scale with 1 in its middle: `│` is 1, `[` and `]` are the margin that does not matter."""
    log_margin = math.log1p(margin_pct / 100)
    ends = [abs(math.log(end)) for end in (estimate.mean, estimate.low, estimate.high) if end]
    reach = max(*ends, 2 * log_margin, 1e-6) * REACH
    scale = Scale(low=-reach, high=reach)
    logs = Estimate(
        mean=math.log(estimate.mean),
        low=math.log(estimate.low) if estimate.low else None,
        high=math.log(estimate.high) if estimate.high else None,
        n=estimate.n,
    )
    line = ["·"] * columns
    for mark, value in (("[", -log_margin), ("]", log_margin), ("│", 0.0)):
        line[scale.column(value, columns)] = mark
    return "".join(over if over != " " else under for over, under in zip(bar(logs, scale, columns), line, strict=True))


def _pct(value: float) -> str:
    return f"{value:,.0f} %" if value >= 100 else f"{value:.2g} %"
