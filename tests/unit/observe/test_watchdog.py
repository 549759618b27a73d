"""Limits, judged without a clock."""

from __future__ import annotations

import pytest

from seatrial.observe.progress import Progress
from seatrial.observe.watchdog import alarm
from seatrial.records.outcome import Cause
from seatrial.records.run_spec import LimitsSpec

SILENT, STEPPING = Progress(), Progress(step=3, total=10, alive=True)


@pytest.mark.parametrize(
    ("progress", "elapsed_s", "limits", "cause"),
    [
        (SILENT, 9.0, LimitsSpec(start_s=10), None),
        (SILENT, 11.0, LimitsSpec(start_s=10), Cause.START_LIMIT),
        (STEPPING, 11.0, LimitsSpec(start_s=10), None),
        (STEPPING, 11.0, LimitsSpec(start_s=None, run_s=10), Cause.RUN_LIMIT),
        (SILENT, 1e9, LimitsSpec(start_s=None, run_s=None), None),
        (SILENT, 30.0, LimitsSpec(start_s=10, run_s=20), Cause.RUN_LIMIT),
    ],
)
def test_alarm(progress: Progress, elapsed_s: float, limits: LimitsSpec, cause: Cause | None) -> None:
    raised = alarm(progress, elapsed_s, limits)
    assert (raised.cause if raised else None) == cause
    assert raised is None or (raised.text and raised.action)
