"""A run and a campaign as trackers get them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from seatrial.report.trackers.tracker import Point, TrackedCampaign, TrackedRun

STARTED_T = 1_794_700_000.0


def run(**changes: Any) -> TrackedRun:
    """One run of 50 steps, with a loss that is not finite at step 5, and two samples of telemetry."""
    made = TrackedRun(
        key="00112233445566aa",
        name="mb8_r1",
        campaign="smoke",
        group="mb8",
        outcome="ok",
        attempt=1,
        started_t=STARTED_T,
        ended_t=STARTED_T + 60,
        params={"micro_batch": 8, "lr": 0.1, "compile": True, "loader": "fork", "odd/name [é]": "x", "none": None},
        tags={"hash": "abc", "attempt": "1", "outcome": "ok"},
        steps=tuple(Point(step=step, t=STARTED_T + step, values=_values(step)) for step in range(50)),
        telemetry=tuple(Point(step=at, t=STARTED_T + at, values={"gpu0/power_w": 300.0 + at}) for at in (2, 4)),
        figures={"samples_per_s": 123.5, "wall_p50_ms": 10.25},
    )
    return dataclasses.replace(made, **changes)


def _values(step: int) -> dict[str, float]:
    return {"wall_iter_ms": 10.0 + step, "loss": math.nan if step == 5 else 1.0}


def campaign(**changes: Any) -> TrackedCampaign:
    made = TrackedCampaign(
        key="ffeeddccbbaa0099",
        name="smoke",
        started_t=STARTED_T,
        tags={"verdict": "PASS", "winner": "mb8"},
        text="# smoke\n\nmb8 wins by 3 % ±1 %.\n",
    )
    return dataclasses.replace(made, **changes)
