"""The seeds' own timing lines: `Timing(window=…)` as ready timing points, `TimingETA` as estimates of the time to go, `TimingRank` as
phases of every rank at a logged step.

In: stamped lines of a log. Out: `SeedReading`. A `Timing` line carries no step number: it belongs to the `Step` line before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from seatrial.collect.log_source import StampedLine
from seatrial.log_lines import plain
from seatrial.records.eta import RANK0, EtaPoint
from seatrial.records.events import PHASES
from seatrial.records.log_formats import NUMBER
from seatrial.records.measure import TimingPoint

STEP = re.compile(r"(?<!Val )\bStep (\d+): Loss ")
TIMING = re.compile(r"\bTiming\(window=\d+\): (.+)")
PERCENTILES = re.compile(rf"(\w+_ms):p50=({NUMBER}) p90=({NUMBER})")
RANK = re.compile(r"\bTimingRank step=(\d+) rank=(\d+) (.+)")
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
            step = int(match.group(1))
        elif (match := TIMING.search(text)) and step is not None and step not in points:
            points[step] = TimingPoint(index=len(points), step=step, values=_percentiles(match.group(1)))
        elif match := ETA.search(text):
            estimates.setdefault(int(match.group(1)), _estimate(match, len(estimates)))
        elif match := RANK.search(text):
            phases.setdefault(int(match.group(2)), {})[int(match.group(1))] = _phases(match.group(3))
    return SeedReading(points=tuple(points.values()), eta_points=tuple(estimates.values()), phases=phases)


def _estimate(match: re.Match[str], index: int) -> EtaPoint:
    mode = ETA_MODE.search(match.group(4))
    told = dict(FIELD.findall(match.group(4)))
    return EtaPoint(
        index=index,
        step=int(match.group(1)),
        remain_steps=int(match.group(2)),
        eta_s=float(match.group(3)),
        mode=mode.group(1) if mode else RANK0,
        source="log",
        basis_iter_ms=float(told["basis_iter_ms"]) if "basis_iter_ms" in told else None,
        samples=int(float(told["samples"])) if "samples" in told else None,
    )


def _percentiles(text: str) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, p50, p90 in PERCENTILES.findall(text):
        values[f"{name}_p50"], values[f"{name}_p90"] = float(p50), float(p90)
    return values


def _phases(text: str) -> dict[str, float]:
    told = {f"{name}_ms": float(value) for name, value in FIELD.findall(text)}
    return {phase: told[phase] for phase in PHASES if phase in told}
