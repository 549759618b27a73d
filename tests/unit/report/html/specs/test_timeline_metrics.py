"""Which metrics stand together in a panel, and in which unit."""

from __future__ import annotations

import pytest

from seatrial.records.charts import DRAWN_GPU, DRAWN_HOST
from seatrial.report.html.specs.timeline_metrics import KIB_PER_GIB, PANELS, Panel, in_fitting_unit
from seatrial.units import KIB_PER_MIB

DISK = next(panel for panel in PANELS if panel.id == "disk")


@pytest.mark.parametrize(
    ("largest", "unit", "per_unit"),
    [
        (0.0, "KiB/s", 1),
        (KIB_PER_MIB - 1, "KiB/s", 1),
        (KIB_PER_MIB, "MiB/s", KIB_PER_MIB),
        (KIB_PER_GIB - 1, "MiB/s", KIB_PER_MIB),
        (KIB_PER_GIB, "GiB/s", KIB_PER_GIB),
        (9e9, "GiB/s", KIB_PER_GIB),
    ],
)
def test_a_rate_is_told_in_the_unit_of_its_peak(largest: float, unit: str, per_unit: int) -> None:
    fitted = in_fitting_unit(DISK, largest)
    assert (fitted.unit, fitted.per_unit) == (unit, per_unit) and fitted.metrics == DISK.metrics


@pytest.mark.parametrize("panel", [panel for panel in PANELS if "/s" not in panel.unit], ids=lambda panel: panel.id)
def test_all_else_stays_in_its_unit(panel: Panel) -> None:
    assert in_fitting_unit(panel, 1e12) is panel


def test_every_metric_that_is_kept_for_drawing_has_one_panel() -> None:
    metrics = [metric for panel in PANELS for metric in panel.metrics]
    assert len(metrics) == len(set(metrics)) and len({panel.id for panel in PANELS}) == len(PANELS)
    assert set(metrics) == {*DRAWN_GPU, *DRAWN_HOST}


def test_no_panel_has_more_metrics_than_dashes_tell_apart() -> None:
    assert max(len(panel.metrics) for panel in PANELS) == 2
