"""The seeds' own timing lines: `Timing(window=…)` as ready timing points, `TimingETA` as estimates of the time to go, `TimingRank` as
phases of every rank at a logged step.

In: stamped lines of a log. Out: `SeedReading`. A `Timing` line carries no step number: it belongs to the `Step` line before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from seatrial.collect.logs.source import StampedLine
from seatrial.log_lines import LARGEST_STEP, plain
from seatrial.records.eta import RANK0, EtaPoint
from seatrial.records.events import PHASES
from seatrial.records.log_formats import NUMBER
from seatrial.records.measure import TimingPoint

STEP = re.compile(r"(?<!Val )\bStep (\d+): Loss ")
TIMING = re.compile(r"\bTiming\(window=\d+\): (.+)")
PERCENTILES = re.compile(rf"(\w+_ms):p50=({NUMBER}) p90=({NUMBER})")
RANK = re.compile(r"\bTimingRank step=(\d{1,12}) rank=(\d{1,9}) (.+)")
ETA = re.compile(rf"\bTimingETA step=(\d+) remain_steps=(\d+) eta_sec=({NUMBER})(.*)")
ETA_MODE = re.compile(r"\bmode=(\w+)")
FIELD = re.compile(rf"(\w+)=({NUMBER})")


@dataclass(frozen=True, kw_only=True)
class SeedReading:
    """What the seeds' timing lines say."""

    points: tuple[TimingPoint, ...] = ()
    eta_points: tuple[EtaPoint, ...] = ()
    phases: dict[int, dict[int, dict[str, float]]] = field(default_factory=dict)
    """Rank → step → phase → ms."""


def read_seed_lines(lines: Sequence[StampedLine]) -> SeedReading:
    """Timing points, estimates and per-rank phases; a step printed twice (by several ranks' logs) counts once."""
    points: dict[int, TimingPoint] = {}
    estimates: dict[int, EtaPoint] = {}
    phases: dict[int, dict[int, dict[str, float]]] = {}
    step: int | None = None
    for line in lines:
        text = plain(line.text)
        if match := STEP.search(text):
            number = _number(match.group(1))
            step = None if number is None else int(number)
        elif (match := TIMING.search(text)) and step is not None and step not in points:
            points[step] = TimingPoint(index=len(points), step=step, values=_percentiles(match.group(1)))
        elif (match := ETA.search(text)) and (estimate := _estimate(match, len(estimates))):
            estimates.setdefault(estimate.step, estimate)
        elif match := RANK.search(text):
            phases.setdefault(int(match.group(2)), {})[int(match.group(1))] = _phases(match.group(3))
    return SeedReading(points=tuple(points.values()), eta_points=tuple(estimates.values()), phases=phases)


def read_rank_lines(lines: Sequence[StampedLine]) -> SeedReading:
    """The per-rank phases alone: any script may print `TimingRank` lines beside its own."""
    phases: dict[int, dict[int, dict[str, float]]] = {}
    for line in lines:
        if "TimingRank" in line.text and (match := RANK.search(plain(line.text))):
            phases.setdefault(int(match.group(2)), {})[int(match.group(1))] = _phases(match.group(3))
    return SeedReading(phases=phases)


def _estimate(match: re.Match[str], index: int) -> EtaPoint | None:
    """None for a line whose numbers cannot be."""
    step, remain_steps, eta_s = (_number(match.group(place)) for place in (1, 2, 3))
    if step is None or remain_steps is None or eta_s is None:
        return None
    mode = ETA_MODE.search(match.group(4))
    told = dict(FIELD.findall(match.group(4)))
    samples = _number(told.get("samples", ""))
    return EtaPoint(
        index=index,
        step=int(step),
        remain_steps=int(remain_steps),
        eta_s=eta_s,
        mode=mode.group(1) if mode else RANK0,
        source="log",
        basis_iter_ms=_number(told.get("basis_iter_ms", "")),
        samples=None if samples is None else int(samples),
    )


def _number(text: str) -> float | None:
    """None for no number, and for one beyond any step or time."""
    value = float(text) if text else math.nan
    return value if 0 <= value <= LARGEST_STEP else None


def _percentiles(text: str) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, p50, p90 in PERCENTILES.findall(text):
        values[f"{name}_p50"], values[f"{name}_p90"] = _number(p50), _number(p90)
    return values


def _phases(text: str) -> dict[str, float]:
    told = {f"{name}_ms": _number(value) for name, value in FIELD.findall(text)}
    return {phase: value for phase in PHASES if (value := told.get(phase)) is not None}
