"""Estimates along step times that were recorded on a GPU: small models, 200 steps, the loss read back every ten."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from seatrial.eta.estimator import EtaEstimator

RECORDED = Path(__file__).parents[2] / "recorded" / "steps"


def recorded_ends_s(name: str) -> list[float]:
    with (RECORDED / name).open(newline="") as file:
        times_s = [float(row["iter_ms"]) / 1000 for row in csv.DictReader(file)]
    return [sum(times_s[: step + 1]) for step in range(len(times_s))]


# The small batch is bound by the host, whose pace wanders by a tenth.
@pytest.mark.parametrize(("name", "largest", "held"), [("tiny_lm_h200_mb16.csv", 0.03, 0.9), ("tiny_lm_h200_mb4.csv", 0.06, 0.7)])
def test_estimates_of_recorded_runs(name: str, largest: float, held: float) -> None:
    ends_s = recorded_ends_s(name)
    length_s = ends_s[-1] - ends_s[0]
    estimator = EtaEstimator(len(ends_s), 10)
    errors, covered = [], []
    for step, end_s in enumerate(ends_s):
        estimator.add(step, end_s)
        found = estimator.estimate() if step >= 40 else None
        if found is not None and step < len(ends_s) - 1:
            left_s = ends_s[-1] - end_s
            errors.append(abs(found.eta_s - left_s) / length_s)
            covered.append(found.low_s <= left_s <= found.high_s)
    assert len(errors) == len(ends_s) - 41
    assert max(errors) < largest
    assert sum(covered) / len(covered) >= held
