"""Figures that a workload reports itself, held against a criterion's bound.

In: a criterion and a run. Out: the reading in the criterion's unit, with the file of the rank that told it; one that was not told, is no
number or cannot be brought into that unit says so.
"""

from __future__ import annotations

import math
import re

from seatrial.judge.reading import FILES, Reading, attempt_file, missing
from seatrial.records.criteria_catalog import METRICS, REPORTED, MetricEntry
from seatrial.records.health import ReportedFigure
from seatrial.records.measure import RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Criterion
from seatrial.units import converted, format_number

_RANK = re.compile(r"rank(\d+)")


def is_reported(entry: MetricEntry) -> bool:
    return (entry.run_field or "").startswith(REPORTED)


def reported_reading(criterion: Criterion, entry: MetricEntry, run: MeasuredRun, measure: RunMeasure) -> Reading:
    """The figure of one run; the last one told counts, and of several ranks the lowest one's."""
    name, key = run.attempt.spec.run, (entry.run_field or "").removeprefix(REPORTED)
    figure = measure.reported.get(key)
    if figure is None:
        why = f'{name} has no {criterion.metric}; let the workload tell it: `probe.figure("{key}", value)`'
        return missing(name, why, FILES.per_run_metrics.name)
    file = attempt_file(run, figure.file) if figure.file else FILES.per_run_metrics.name
    if not math.isfinite(figure.value):
        return missing(name, f"{name} has no {criterion.metric}: it told {figure.value:g}", file)
    asked = criterion.unit or entry.unit
    told = figure.unit or (entry.unit if criterion.metric in METRICS else "")
    value = converted(figure.value, told, asked) if asked else figure.value
    if value is None:
        return missing(name, f"{name}: {_unlike(key, told, asked)}", file)
    return Reading(
        subject=name,
        value=value,
        unit="" if (asked or told) == "ratio" else asked or told,
        file=file,
        window="as the run reported it",
        n=figure.n,
        detail=_detail(figure, measure.world_size, told if asked and told != asked else ""),
    )


def _unlike(key: str, told: str, asked: str) -> str:
    if told:
        return f"{key} is told in {told}, asked in {asked}; tell it in {asked}"
    return f'{key} is told without a unit, asked in {asked}; tell it: `probe.figure("{key}", value, unit="{asked}")`'


def _detail(figure: ReportedFigure, ranks: int, converted_from: str) -> str:
    rank = _RANK.search(figure.file)
    whose = [f"rank {rank[1]}'s"] if rank and ranks > 1 else []
    told = [f"told as {format_number(figure.value)} {converted_from}"] if converted_from else []
    return ", ".join([*whose, *told])
