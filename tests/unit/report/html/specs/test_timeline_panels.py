"""The panels of the timeline, from the top down."""

from __future__ import annotations

from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.theme import Spec
from seatrial.report.html.specs.timeline_panels import ANSWERS, panels
from tests.unit.report.html.made_page import columns, made_page


def titles(data: PageData) -> list[str]:
    return [panel["title"]["text"] for panel in panels(data)]


def telemetry(*rows: tuple[str, str, float | None]) -> PageData:
    told = [{"run": "g1_r1", "t_s": 1.0, "metric": metric, "source": source, "value": value} for metric, source, value in rows]
    return PageData(summary={}, tables={"telemetry": columns(told)})


def spans(*rows: tuple[str, str]) -> PageData:
    told = [{"run": "g1_r1", "source": source, "span": span, "t_s": 0.0, "begin_s": 0.0, "end_s": 1.0} for source, span in rows]
    return PageData(summary={}, tables={"spans": columns(told)})


def layer(panel: Spec, name: str) -> Spec:
    found: Spec = next(one for one in panel["layer"] if one.get("name") == name)
    return found


def test_nothing_to_draw_has_no_panels() -> None:
    assert panels(PageData(summary={})) == []
    assert panels(telemetry(("power_w", "gpu 0", None))) == []


def test_what_the_run_did_stands_apart_from_what_held_its_clocks_back() -> None:
    assert titles(spans(("run", "train"), ("gpu 0", "thermal"))) == ["What the run did", "Clocks held back"]
    assert titles(spans(("run", "train"), ("run", "eval"))) == ["What the run did"]


def test_the_last_panel_alone_has_the_labels_of_the_time() -> None:
    drawn = panels(made_page(steps=40, groups=1, repeats=1))
    axes = [[one["encoding"]["x"]["axis"] for one in panel["layer"] if "axis" in one["encoding"].get("x", {})] for panel in drawn]
    assert {axis["title"] for axis in axes[-1]} == {"seconds since launch"}
    assert {axis["title"] for own in axes[:-1] for axis in own} == {None}


def test_step_time_stands_between_spans_and_the_machine() -> None:
    drawn = titles(made_page(steps=40, groups=1, repeats=1))
    assert drawn[0] == "What the run did" and drawn.index("Step time, ms") < drawn.index("Power, W")
    untimed = PageData(summary={}, tables={"steps": {"run": ["g1_r1"], "step": [0], "iter_ms": [None], "t_s": [1.0]}})
    assert panels(untimed) == []


def test_two_metrics_of_a_panel_are_named_by_their_dashes_and_rates_fit_their_peak() -> None:
    (disk,) = titles(telemetry(("disk_read_kib_per_s", "host", 5000.0), ("disk_write_kib_per_s", "host", 10.0)))
    assert disk == "Disk, MiB/s (read ——, written - - -)"


def test_gpus_stand_by_number_and_are_explained_once() -> None:
    both = telemetry(*((metric, f"gpu {at}", 1.0) for metric in ("power_w", "temp_c") for at in (10, 9)))
    power, temperature = panels(both)
    shade = power["layer"][1]["encoding"]["color"]
    assert shade["scale"]["domain"] == ["gpu 9", "gpu 10"] and shade["legend"] is not None
    assert temperature["layer"][1]["encoding"]["color"]["legend"] is None, "the same sources have the same colours"


def test_a_panel_answers_the_pointer_with_a_field_for_each_source() -> None:
    (memory,) = panels(telemetry(("mem_used_mib", "gpu 0", 1024.0), ("mem_free_mib", "gpu 0", 2048.0)))
    told = layer(memory, f"{ANSWERS}frame")["encoding"]["tooltip"]["value"]["expr"]
    assert '"gpu 0, used GiB"' in told and '"gpu 0, free GiB"' in told and '"s0m1"' in told
