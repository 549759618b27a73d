"""A criterion and its readings in sentences.

In: a criterion, its readings, how each stands. Out: what was asked, and what was found, with unit, interval and runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seatrial.judge.counts import COUNTED, told_count
from seatrial.judge.facts import Facts
from seatrial.judge.reading import Reading, listed, shape
from seatrial.records.criteria_catalog import CAMPAIGN, EVERY_GROUP, EVERY_RUN, WINNER, metric_entry
from seatrial.records.verdict import Criterion
from seatrial.units import format_number
from seatrial.wording import count

_WHERE = {CAMPAIGN: "", EVERY_RUN: " in every run", EVERY_GROUP: " in every group", WINNER: " of the winner"}
# Beyond this, repeats are no way to settle a difference that lies so near to its bound.
MOST_REPEATS_ADVISED = 100


def asked(criterion: Criterion) -> str | None:
    """The criterion in words; None when it needs a bound and has none."""
    subject = f"{criterion.metric}{_WHERE.get(criterion.scope, '')}"
    against = f" against {criterion.baseline.shown}" if criterion.baseline and criterion.baseline.text else ""
    if not needs_bound(criterion):
        return f"{subject}{against}"
    bounds = (("at least", criterion.at_least), ("at most", criterion.at_most))
    told = [f"{word} {bound:,.10g}{unit_text(unit_of(criterion))}" for word, bound in bounds if bound is not None]
    return f"{subject}{against} {' and '.join(told)}" if told else None


def needs_bound(criterion: Criterion) -> bool:
    entry = metric_entry(criterion.metric)
    return entry is None or entry.needs_bound


def unit_of(criterion: Criterion) -> str:
    entry = metric_entry(criterion.metric)
    unit = criterion.unit or (entry.unit if entry else "")
    return "" if unit in ("ratio", "runs") else unit


def unit_text(unit: str) -> str:
    return f" {unit}" if unit and unit != "runs" else ""


def told_broken(criterion: Criterion, broken: Sequence[Reading], of: int) -> str:
    """'1 of 7 runs failed: …', '1,270 samples/s in mb16', 'not so in 2 of 8: a_r1 (3.1 → 3.4), b_r2 (…)'."""
    told = [_told(criterion, reading) for reading in broken]
    return told[0] if of == 1 else f"not so in {len(broken)} of {of}: {listed(told)}"


def told_holding(criterion: Criterion, readings: Sequence[Reading]) -> str:
    """All hold: the value nearest to its bound says what that is worth."""
    if len(readings) == 1:
        return _told(criterion, readings[0])
    if not needs_bound(criterion):
        beside = list(dict.fromkeys(reading.beside for reading in readings if reading.beside))
        return f"so in all {len(readings)}" + (f" ({listed(beside)})" if beside else "")
    nearest = min if criterion.at_most is None else max
    worst = nearest(readings, key=lambda reading: float(reading.value or 0))
    return f"so in all {len(readings)}, the nearest being {_told(criterion, worst)}"


def told_open(criterion: Criterion, readings: Sequence[Reading]) -> str:
    """Why nothing can be said; of reasons that differ only in numbers the first, and how many more there are."""
    together: dict[str, list[str]] = {}
    for reading in readings:
        why = _why_open(criterion, reading)
        together.setdefault(shape(why), []).append(why)
    told = [first if not more else f"{first} (and {len(more)} more likewise)" for first, *more in together.values()]
    return listed(told, "; ").rstrip("?")


def _why_open(criterion: Criterion, reading: Reading) -> str:
    if reading.missing:
        return reading.missing
    told = _told(criterion, reading)
    if reading.confidence is None or reading.is_inside(criterion):
        return f"{told}; {reading.unsettled}"
    return f"{told}: the interval reaches over the bound; {repeats_wanted(reading, criterion)}"


def repeats_wanted(reading: Reading, criterion: Criterion) -> str:
    """What would settle an interval that reaches over its bound, in words: its width goes with the root of the runs."""
    if reading.low is None or reading.high is None or not isinstance(reading.value, (int, float)) or not reading.repeats:
        return "more repeats may tell"
    bounds = [bound for bound in (criterion.at_least, criterion.at_most) if bound is not None and reading.low <= bound <= reading.high]
    distance = min((abs(reading.value - bound) for bound in bounds), default=0.0)
    half = (reading.high - reading.low) / 2
    if distance <= 0 or half / distance > MOST_REPEATS_ADVISED:
        return "it lies on the bound, where no number of repeats tells: INCONCLUSIVE stands"
    more = max(1, math.ceil(((half / distance) ** 2 - 1) * reading.repeats))
    of_each = " of each" if _is_between_groups(criterion) else ""
    if more > MOST_REPEATS_ADVISED:
        return f"about {more:,} more repeats{of_each} would be needed to tell: without them INCONCLUSIVE stands"
    return f"about {count(more, 'more repeat')}{of_each} would tell"


def _is_between_groups(criterion: Criterion) -> bool:
    entry = metric_entry(criterion.metric)
    return entry is not None and (entry.compares or entry.scopes == (CAMPAIGN,))


def _told(criterion: Criterion, reading: Reading) -> str:
    if criterion.metric in COUNTED:
        return told_count(criterion.metric, reading)
    detail = ", ".join(part for part in (reading.detail, reading.beside) if part)
    told = reading.subject if isinstance(reading.value, bool) else f"{_shown(reading)} in {reading.subject}"
    if reading.broken:
        told = f"{told} does not count: {reading.broken.rstrip('.')}"
    return f"{told} ({detail})" if detail else told


def _shown(reading: Reading) -> str:
    number = float(reading.value or 0)
    return f"{f'{number:.3g}' if reading.unit == '%' else format_number(number)}{unit_text(reading.unit)}"


def why_asked(criterion: Criterion) -> str:
    return f" (asked for because: {criterion.reason.rstrip('.')})" if criterion.reason else ""


def still_to_run(facts: Facts) -> str:
    pending = len(facts.pending)
    return f"{count(pending, 'run')} {'is' if pending == 1 else 'are'} still to be run"
