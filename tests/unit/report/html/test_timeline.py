"""The timeline chart."""

from __future__ import annotations

import pytest

from seatrial.core.text import KIB_PER_MIB
from seatrial.records.columns import DRAWN_GPU, DRAWN_HOST
from seatrial.report.html.data import ChartData
from seatrial.report.html.timeline import KIB_PER_GIB, PANELS, in_fitting_unit, panels
from seatrial.report.html.vega import Spec
from tests.unit.report.html.made_page import columns, made_charts


def telemetry(*rows: tuple[str, str, float | None]) -> ChartData:
    told = [{"run": "g1_r1", "t_s": 1.0, "metric": metric, "source": source, "value": value} for metric, source, value in rows]
    return ChartData(tables={"telemetry": columns(told)})


def spans(*rows: tuple[str, str]) -> ChartData:
    told = [{"run": "g1_r1", "source": source, "span": span, "t_s": 0.0, "begin_s": 0.0, "end_s": 1.0} for source, span in rows]
    return ChartData(tables={"spans": columns(told)})


def layer(panel: Spec, name: str) -> Spec:
    found: Spec = next(one for one in panel["layer"] if one.get("name") == name)
    return found


def test_nothing_to_draw_has_no_panels() -> None:
    assert panels(ChartData()) == []
    assert panels(telemetry(("power_w", "gpu 0", None))) == []


def test_the_last_panel_alone_has_the_labels_of_the_time() -> None:
    drawn = panels(made_charts(steps=40, groups=1, repeats=1))
    axes = [[one["encoding"]["x"]["axis"] for one in panel["layer"] if "axis" in one["encoding"].get("x", {})] for panel in drawn]
    assert {axis["title"] for axis in axes[-1]} == {"seconds since launch"}
    assert {axis["title"] for own in axes[:-1] for axis in own} == {None}


def test_gpus_are_by_number_and_are_explained_once() -> None:
    both = telemetry(*((metric, f"gpu {at}", 1.0) for metric in ("power_w", "temp_c") for at in (10, 9)))
    power, temperature = panels(both)
    shade = power["layer"][1]["encoding"]["color"]
    assert shade["scale"]["domain"] == ["gpu 9", "gpu 10"] and shade["legend"] is not None
    assert temperature["layer"][1]["encoding"]["color"]["legend"] is None, "the same sources have the same colours"


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
def test_a_rate_is_reported_in_the_unit_of_its_peak(largest: float, unit: str, per_unit: int) -> None:
    fitted = in_fitting_unit(DISK, largest)
    assert (fitted.unit, fitted.per_unit) == (unit, per_unit) and fitted.metrics == DISK.metrics


def test_every_metric_that_is_kept_for_drawing_has_one_panel() -> None:
    metrics = [metric for panel in PANELS for metric in panel.metrics]
    assert len(metrics) == len(set(metrics)) and len({panel.id for panel in PANELS}) == len(PANELS)
    assert set(metrics) == {*DRAWN_GPU, *DRAWN_HOST}
