"""A criterion and its readings in sentences.

In: a criterion, its readings, how each stands. Out: what was asked, and what was found, with unit, interval and runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.judge.compared import repeats_wanted
from seatrial.judge.counts import COUNTED, told_count
from seatrial.judge.facts import Facts
from seatrial.judge.reading import Reading, listed, shape
from seatrial.records.criteria_catalog import CAMPAIGN, EVERY_GROUP, EVERY_RUN, WINNER, metric_entry
from seatrial.records.verdict import Criterion

_WHERE = {CAMPAIGN: "", EVERY_RUN: " in every run", EVERY_GROUP: " in every group", WINNER: " of the winner"}


def asked(criterion: Criterion) -> str | None:
    """The criterion in words; None when it needs a bound and has none."""
    subject = f"{criterion.metric}{_WHERE.get(criterion.scope, '')}"
    against = f" against {criterion.baseline.text}" if criterion.baseline and criterion.baseline.text else ""
    if not needs_bound(criterion):
        return f"{subject}{against}"
    bounds = (("at least", criterion.at_least), ("at most", criterion.at_most))
    told = [f"{word} {bound:.6g}{unit_text(unit_of(criterion))}" for word, bound in bounds if bound is not None]
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
    """'1 of 7 runs failed: …', '1270 samples/s in mb16', 'not so in 2 of 8: a_r1 (3.1 → 3.4), b_r2 (…)'."""
    told = [_told(criterion, reading) for reading in broken]
    return told[0] if of == 1 else f"not so in {len(broken)} of {of}: {listed(told)}"


def told_holding(criterion: Criterion, readings: Sequence[Reading]) -> str:
    """All hold: the value nearest to its bound says what that is worth."""
    if len(readings) == 1:
        return _told(criterion, readings[0])
    if not needs_bound(criterion):
        return f"so in all {len(readings)}"
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
    if reading.unsettled:
        return f"{told}; {reading.unsettled}"
    return f"{told}: the interval reaches over the bound; {repeats_wanted(reading, criterion)}".rstrip("; ")


def _told(criterion: Criterion, reading: Reading) -> str:
    if criterion.metric in COUNTED:
        return told_count(criterion.metric, reading)
    if isinstance(reading.value, bool):
        return f"{reading.subject} ({reading.detail})" if reading.detail else reading.subject
    digits = ".3g" if reading.unit == "%" else ".6g"
    value = f"{float(reading.value or 0):{digits}}{unit_text(reading.unit)} in {reading.subject}"
    return f"{value} ({reading.detail})" if reading.detail else value


def why_asked(criterion: Criterion) -> str:
    return f" (asked for because: {criterion.reason.rstrip('.')})" if criterion.reason else ""


def still_to_run(facts: Facts) -> str:
    count = len(facts.pending)
    return f"{count} {'run is' if count == 1 else 'runs are'} still to be run"
