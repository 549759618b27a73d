"""How far estimates of the time to go were off, in one run or over several.

In: the points of each run, and the run's length. Out: `EtaQuality`. Points before a tenth of a run do not count, nor does the last step,
where nothing is left to be wrong about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seatrial.records.eta import RANK0, EtaPoint, EtaQuality

FROM_FRACTION = 0.1


def of_mode(points: Sequence[EtaPoint], mode: str) -> tuple[EtaPoint, ...]:
    """Those of the mode the plan asks for, else of rank 0."""
    asked = tuple(point for point in points if point.mode == mode)
    return asked or tuple(point for point in points if point.mode == RANK0)


def quality(runs: Iterable[tuple[Sequence[EtaPoint], float]]) -> EtaQuality | None:
    """Errors of all points of all runs together, each run with its length; None where no estimate can be held against a truth."""
    errors_s: list[float] = []
    fractions: list[float] = []
    covered: list[bool] = []
    lengths_s: list[float] = []
    for points, length_s in runs:
        lengths_s.append(length_s)
        for point in points if length_s > 0 else ():
            actual_s, low_s, high_s = point.actual_s, point.low_s, point.high_s
            if actual_s is None or not _counts(point):
                continue
            error_s = abs(point.eta_s - actual_s)
            errors_s.append(error_s)
            fractions.append(error_s / length_s)
            if low_s is not None and high_s is not None:
                covered.append(low_s <= actual_s <= high_s)
    if not errors_s:
        return None
    errors_s.sort()
    fractions.sort()
    return EtaQuality(
        points=len(errors_s),
        median_error_s=_quantile(errors_s, 0.5),
        p90_error_s=_quantile(errors_s, 0.9),
        median_fraction=_quantile(fractions, 0.5),
        p90_fraction=_quantile(fractions, 0.9),
        covered=sum(covered) / len(covered) if covered else None,
        length_s=sum(lengths_s) / len(lengths_s),
    )


def _counts(point: EtaPoint) -> bool:
    left = point.remain_steps
    return 0 < left <= (1 - FROM_FRACTION) * (point.step + left + 1)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in order, linear between neighbours."""
    at = (len(ordered) - 1) * share
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
