"""How much of each run is drawn, so that the page of all of them can still be opened.

In: how many runs there are. Out: `Detail`. All runs together get so many points; a few runs get what a screen can show of each. Of more
than a thousand runs each still gets what shows its extremes; the report then keeps samples and spans of some runs only
(report/timeline_runs.py).
"""

from __future__ import annotations

from seatrial.records.charts import Detail

STEP_POINTS, MOST_STEPS, LEAST_STEPS = 100_000, 1_500, 16
SERIES_POINTS, MOST_OF_A_SERIES, LEAST_OF_A_SERIES = 8_000, 400, 8
ETA_POINTS, MOST_ETA, LEAST_ETA = 10_000, 150, 5
"""Of all runs together; most and least of one. A thousand runs get 100 steps, 8 points of a series, 10 estimates each."""


def detail_for(runs: int) -> Detail:
    """For a page with this many runs."""
    return Detail(
        steps=_share(STEP_POINTS, runs, MOST_STEPS, LEAST_STEPS),
        telemetry=_share(SERIES_POINTS, runs, MOST_OF_A_SERIES, LEAST_OF_A_SERIES),
        eta=_share(ETA_POINTS, runs, MOST_ETA, LEAST_ETA),
    )


def _share(points: int, runs: int, most: int, least: int) -> int:
    return min(most, max(least, points // max(runs, 1)))
