"""Estimates of the time to go, and how good they turned out."""

from __future__ import annotations

from dataclasses import dataclass

RANK0, GLOBAL_MAX, OFF = "rank0", "global_max", "off"
"""Whose estimate is given: rank 0's, the slowest rank's, or nobody's."""


@dataclass(frozen=True, kw_only=True)
class EtaEstimate:
    """Time left from one moment on, with the interval it is expected in nine times of ten."""

    eta_s: float
    low_s: float
    high_s: float
    basis_iter_ms: float
    """The mean step time it rests on, pauses not counted."""
    samples: int
    """Steps it rests on."""


@dataclass(frozen=True, kw_only=True)
class EtaPoint:
    """One row of eta_points.csv: what was, or would have been, said when `step` had ended."""

    index: int
    step: int
    remain_steps: int
    eta_s: float
    mode: str
    """`rank0` or `global_max`."""
    source: str
    """`events` or `steps` when it was computed from them, `log` when the script itself said so."""
    low_s: float | None = None
    high_s: float | None = None
    basis_iter_ms: float | None = None
    samples: int | None = None
    actual_s: float | None = None
    """How long it then took until the last step; None where the run did not reach it."""


@dataclass(frozen=True, kw_only=True)
class EtaQuality:
    """How far the estimates of one run, or of all, were off, from a tenth of the run on."""

    points: int
    median_error_s: float
    p90_error_s: float
    median_fraction: float
    """Error over the length of the run, from first step to last."""
    p90_fraction: float
    covered: float | None = None
    """Share of points whose interval held the truth; None where no point had one."""
    length_s: float | None = None
    """Of the run, from the end of its first step to that of its last; the mean where several runs are taken together."""
