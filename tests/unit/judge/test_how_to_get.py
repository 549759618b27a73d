"""What a run must do so that a metric can be judged."""

from __future__ import annotations

from seatrial.judge.how_to_get import HOW_TO_GET, how_to_get
from seatrial.records.criteria_catalog import METRICS


def test_every_metric_has_a_way_and_the_table_knows_no_other_names() -> None:
    assert set(HOW_TO_GET) <= set(METRICS)
    assert "leave `telemetry.gpu_s` on" in how_to_get("gpu_mem_peak_mib")
    assert "let it report steps" in how_to_get("steps_per_s")
