"""Figures of the telemetry over the window, by run and by host."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.telemetry_summary import (
    WindowSpan,
    column,
    finite_mean,
    gpu_name,
    host_measures,
    strongest_by_kind,
    tables_by_host,
    telemetry_cautions,
    telemetry_figures,
    window_span,
)
from seatrial.collect.event_steps import STEP_SCHEMA, empty_pauses
from seatrial.records.attempt import StepTables
from seatrial.records.caution import Scalar
from seatrial.records.columns import TELEMETRY_FIGURES
from seatrial.records.measure import JitterCause, Window
from seatrial.records.telemetry import GPUS_A_HOST, SamplerAccount, TelemetryAccount, TelemetryTables
from tests.facts import states
from tests.unit.analyse.factory import golden

SENTENCES = golden("telemetry_summary")

ACCOUNT = TelemetryAccount(
    gpu=SamplerAccount(interval_s=1.0, rows=6, samples=7, invalid=1, gaps=2, cpu_s=0.03, wall_s=10.0),
    host=SamplerAccount(interval_s=1.0, rows=6, samples=6, gaps=1, cpu_s=0.01, wall_s=10.0),
)


def _gpu(times: list[float], gpus: int = 1, **columns: list[Any]) -> pl.DataFrame:
    """One row a GPU and time; each column one value a time, the same for every GPU."""
    rows = [(at, index, place) for place, at in enumerate(times) for index in range(gpus)]
    data: dict[str, Any] = {"epoch_sec": [at for at, _, _ in rows], "gpu_index": [float(index) for _, index, _ in rows]}
    data |= {name: [values[place] for _, _, place in rows] for name, values in columns.items()}
    return pl.DataFrame(data, schema_overrides={"throttle_reasons": pl.String})


def _figures(gpu: pl.DataFrame | None = None, host: pl.DataFrame | None = None, **window: Any) -> dict[str, Any]:
    account = window.pop("account", ACCOUNT)
    return dict(telemetry_figures(TelemetryTables(gpu=gpu, host=host), account, WindowSpan(**window)))


def test_only_samples_of_the_window_count() -> None:
    gpu = _gpu(
        [0, 1, 2, 3, 4],
        util_gpu_pct=[0, 90, 100, 95, 1],
        power_w=[100, 600, 700, 650, 110],
        temp_c=[40, 60, 62, 61, 90],
        sm_clock_mhz=[300, 1900, 1980, 1940, 300],
        mem_used_mib=[1, 500, 800, 700, 9000],
        foreign_process_count=[5, 0, 1, 0, 5],
        throttle_reasons=["hw_slowdown", "", "sw_power_cap", "sw_power_cap+sw_thermal_slowdown", None],
    )
    found = _figures(gpu, first_t=0.5, last_t=3.5)
    assert {name: found[name] for name in found if name.startswith("gpu_") and "energy" not in name} == {
        "gpu_util_mean_pct": 95.0,
        "gpu_power_mean_w": 650.0,
        "gpu_power_max_w": 700.0,
        "gpu_joules_per_sample": None,
        "gpu_temp_max_c": 62.0,
        "gpu_sm_clock_mean_mhz": 1940.0,
        "gpu_mem_peak_mib": 800.0,
        "gpu_throttled_pct": pytest.approx(200 / 3),
        "gpu_throttle_reasons": "sw_power_cap+sw_thermal_slowdown",
        "gpu_foreign_process_max": 1,
    }
    assert tuple(found) == TELEMETRY_FIGURES


def test_energy_is_what_the_counters_grew_by_over_exactly_the_window() -> None:
    gpu = _gpu([0, 10, 20], gpus=2, energy_j=[1000.0, 4000.0, 7000.0], power_w=[1.0, 1.0, 1.0])
    found = _figures(gpu, first_t=5.0, last_t=15.0, samples=100.0)
    assert found["gpu_energy_j"] == pytest.approx(2 * 3000.0), "both GPUs, and not only between whole samples"
    assert found["gpu_joules_per_sample"] == pytest.approx(60.0)
    assert found["telemetry_note"] is None


def test_without_a_counter_power_over_time_is_energy_with_a_note() -> None:
    gpu = _gpu([0, 10, 20], power_w=[100.0, 200.0, None], energy_j=[None, None, None])
    found = _figures(gpu, first_t=0.0, last_t=10.0)
    assert found["gpu_energy_j"] == pytest.approx(1500.0)
    assert states(str(found["telemetry_note"]), "energy", "power", "counter")


def test_a_counter_that_was_reset_is_not_believed() -> None:
    gpu = _gpu([0, 10, 20], power_w=[100.0, 100.0, 100.0], energy_j=[9000.0, 10.0, 1010.0])
    assert _figures(gpu)["gpu_energy_j"] == pytest.approx(2000.0)


@pytest.mark.parametrize(("last_t", "energy_j"), [(10.0, 1000.0), (11.0, 1100.0), (12.0, None)])
def test_energy_needs_samples_over_nearly_all_of_the_window(last_t: float, energy_j: float | None) -> None:
    gpu = _gpu([0, 10], energy_j=[0.0, 1000.0])
    found = _figures(gpu, first_t=0.0, last_t=last_t)["gpu_energy_j"]
    assert found == (None if energy_j is None else pytest.approx(energy_j))


def test_clocks_that_somebody_chose_are_no_throttling() -> None:
    gpu = _gpu([0, 1], throttle_reasons=["applications_clocks_setting", "applications_clocks_setting+sw_power_cap"])
    found = _figures(gpu)
    assert (found["gpu_throttled_pct"], found["gpu_throttle_reasons"]) == (50.0, "sw_power_cap")


def test_free_clocks_are_distinguished_from_a_driver_without_reasons() -> None:
    gpu = _gpu([0, 1], throttle_reasons=[None, None])
    assert _figures(gpu)["gpu_throttled_pct"] == 0.0
    silent = replace(ACCOUNT, gpu=SamplerAccount(interval_s=1.0, rows=2, missing=("throttle_reasons",)))
    assert _figures(gpu, account=silent)["gpu_throttled_pct"] is None


def test_a_window_without_a_sample_has_no_figures_and_gives_the_reason() -> None:
    gpu, host = _gpu([0, 100], util_gpu_pct=[1, 2]), pl.DataFrame({"epoch_sec": [0.0, 100.0], "rss_kib": [1.0, 2.0]})
    found = _figures(gpu, host, first_t=40.0, last_t=60.0)
    assert found["gpu_util_mean_pct"] is None and found["host_rss_peak_mib"] is None
    assert states(str(found["telemetry_note"]), "no GPU sample", "no host sample")


def test_host_figures() -> None:
    host = pl.DataFrame(
        {
            "epoch_sec": [0.0, 1.0, 2.0],
            "cpu_user_pct": [None, 40.0, 60.0],
            "cpu_system_pct": [None, 10.0, 10.0],
            "cpu_steal_pct": [None, 2.0, 4.0],
            "mem_available_kib": [10240.0, 5120.0, 8192.0],
            "rss_kib": [1024.0, 4096.0, 2048.0],
        }
    )
    found = _figures(host=host)
    assert {name: found[name] for name in found if name.startswith("host_")} == {
        "host_rss_peak_mib": 4.0,
        "host_cpu_busy_mean_pct": 60.0,
        "host_cpu_steal_mean_pct": 3.0,
        "host_mem_available_min_mib": 5.0,
    }


def test_the_samplers_own_cost_and_counts() -> None:
    found = _figures(_gpu([0.0], util_gpu_pct=[1]))
    assert (found["telemetry_gaps"], found["telemetry_invalid"]) == (3, 1)
    assert found["telemetry_cpu_pct"] == pytest.approx(0.4), "percent of one core, both together"


def test_a_killed_run_has_figures_without_an_account() -> None:
    found = _figures(_gpu([0, 1], util_gpu_pct=[50, 100], throttle_reasons=["", "hw_slowdown"]), account=None)
    assert (found["gpu_util_mean_pct"], found["gpu_throttled_pct"], found["telemetry_gaps"]) == (75.0, 50.0, None)


def test_the_cost_of_a_sampler_that_was_at_work_for_less_than_a_second() -> None:
    account = TelemetryAccount(
        host=SamplerAccount(interval_s=0.1, cpu_s=0.01, wall_s=0.5), gpu=SamplerAccount(interval_s=0.1, note="no GPU")
    )
    found = telemetry_figures(TelemetryTables(), account, WindowSpan())
    assert found["telemetry_cpu_pct"] == pytest.approx(2.0), "one that was never at work costs nothing"
    assert (found["telemetry_note"], found["gpu_power_mean_w"]) == ("GPU: no GPU", None)
    assert telemetry_figures(TelemetryTables(), None, WindowSpan()) == {}


WELL = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, rows=9), host=SamplerAccount(interval_s=2.0, rows=9))


def _kinds(figures: dict[str, Scalar], account: TelemetryAccount | None = WELL) -> list[str]:
    return [caution.kind for caution in telemetry_cautions(figures, account, "mb8_r1")]


def _of(**changes: object) -> TelemetryAccount:
    return TelemetryAccount(gpu=SamplerAccount(**{"interval_s": 2.0, "rows": 9, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("account", "kinds"),
    [
        (WELL, []),
        (None, []),
        (TelemetryAccount(), []),
        (_of(rows=0, empty=True, expected=True, note="no GPU"), []),
        (_of(rows=0, empty=True, note="NVML does not start"), ["telemetry_empty"]),
        (_of(stopped_t=5.0, note="the driver stopped answering"), ["telemetry_stopped"]),
        (_of(rows=0, empty=True, stopped_t=5.0), ["telemetry_stopped"]),
        (_of(gaps=1, longest_gap_s=9.0, invalid=3), ["telemetry_gaps", "telemetry_invalid"]),
    ],
)
def test_of_the_samplers(account: TelemetryAccount | None, kinds: list[str]) -> None:
    assert _kinds({}, account) == kinds


@pytest.mark.parametrize(
    ("figures", "kinds"),
    [
        ({"gpu_throttled_pct": 5.0, "gpu_foreign_process_max": 0, "host_cpu_steal_mean_pct": 5.0}, []),
        ({"gpu_throttled_pct": None, "gpu_foreign_process_max": None, "host_cpu_steal_mean_pct": None}, []),
        ({"gpu_throttled_pct": 5.1, "gpu_throttle_reasons": "sw_power_cap"}, ["gpu_throttled"]),
        ({"gpu_foreign_process_max": 1}, ["gpu_shared"]),
        ({"host_cpu_steal_mean_pct": 12.0}, ["cpu_stolen"]),
    ],
)
def test_of_the_machine(figures: dict[str, Scalar], kinds: list[str]) -> None:
    assert _kinds(figures) == kinds


def test_texts_have_fact_and_advice() -> None:
    figures: dict[str, Scalar] = {"gpu_throttled_pct": 91.6, "gpu_throttle_reasons": "sw_power_cap", "gpu_foreign_process_max": 2}
    throttled, shared = telemetry_cautions(figures, None, "mb8_r1")
    assert throttled.text in SENTENCES
    assert shared.text in SENTENCES
    (hot,) = telemetry_cautions({"gpu_throttled_pct": 40.0, "gpu_throttle_reasons": "hw_thermal_slowdown+sw_power_cap"}, None, "mb8_r1")
    assert hot.text in SENTENCES
    assert (throttled.subject, throttled.numbers) == ("mb8_r1", {"throttled_pct": 91.6, "reasons": "sw_power_cap"})


def test_every_caution_of_a_sampler_is_of_the_run_and_has_its_numbers() -> None:
    account = _of(gaps=1, longest_gap_s=9.0, invalid=3, note="a negative power")
    gaps, invalid = telemetry_cautions({}, account, "mb8_r1")
    assert gaps.numbers == {"gaps": 1, "longest_s": 9.0, "interval_s": 2.0} and invalid.numbers == {"invalid": 3, "rows": 9}
    (stopped,) = telemetry_cautions({}, _of(stopped_t=5.0, note="no answer"), "mb8_r1")
    (empty,) = telemetry_cautions({}, _of(rows=0, samples=4, empty=True), "mb8_r1")
    assert stopped.numbers == {"rows": 9, "t": 5.0} and empty.numbers == {"samples": 4}
    assert {one.subject for one in (gaps, invalid, stopped, empty)} == {"mb8_r1"}
    assert empty.text in SENTENCES


THREE_HOSTS = ("node1", "node2", "node3")
HOST = pl.DataFrame(
    {
        "epoch_sec": [0.0, 1.0, 2.0, 1.0],
        "host_index": [0, 0, 0, 1],
        "cpu_user_pct": [90.0, 10.0, 20.0, None],
        "cpu_system_pct": [9.0, 1.0, 3.0, 5.0],
        "rss_kib": [9_999_999.0, 1024.0, 2048.0, None],
        "net_rx_kib_per_s": [0.0, 1024.0, 3072.0, None],
        "net_tx_kib_per_s": [0.0, None, 512.0, None],
    }
)
GPU = pl.DataFrame(
    {
        "epoch_sec": [0.0, 1.0, 1.0, 2.0],
        "gpu_index": [0, 0, 1, 2 * GPUS_A_HOST],
        "util_gpu_pct": [1.0, 60.0, 80.0, 50.0],
    }
)
AFTER_WARM_UP = WindowSpan(first_t=1.0, last_t=2.0)


def test_one_host_has_none_its_figures_are_the_runs() -> None:
    assert host_measures(TelemetryTables(host=HOST, gpu=GPU), AFTER_WARM_UP) == ()


def test_figures_are_those_of_the_window() -> None:
    first, *_ = host_measures(TelemetryTables(host=HOST, gpu=GPU, hosts=THREE_HOSTS), AFTER_WARM_UP)
    assert (first.host, first.gpus, first.n) == ("node1", 2, 2)
    assert (first.cpu_busy_mean_pct, first.rss_peak_mib, first.gpu_util_mean_pct) == (17.0, 2.0, 70.0)
    assert (first.net_rx_mean_mib_per_s, first.net_tx_mean_mib_per_s) == (2.0, 0.5)


def test_what_is_unknown_is_none_and_a_host_with_gpus_only_has_them() -> None:
    _, second, third = host_measures(TelemetryTables(host=HOST, gpu=GPU, hosts=THREE_HOSTS), AFTER_WARM_UP)
    assert (second.host, second.gpus, second.n) == ("node2", 0, 1)
    assert (second.cpu_busy_mean_pct, second.rss_peak_mib, second.net_rx_mean_mib_per_s, second.gpu_util_mean_pct) == (None,) * 4
    assert (third.host, third.gpus, third.gpu_util_mean_pct, third.n) == ("node3", 1, 50.0, 0)


def tables(first_t: float | None = 10.0) -> StepTables:
    rows = [{"rank": rank, "step": step, "span": 1, "t": 10.0 + step, "samples": 4.0} for rank in (0, 1) for step in range(5)]
    rows[0]["t"] = first_t
    return StepTables(source="events", steps=pl.DataFrame(rows, schema=STEP_SCHEMA), pauses=empty_pauses(), world_size=2)


def test_it_begins_where_the_step_before_ended_and_counts_all_ranks() -> None:
    window = Window(first_step=1, last_step=3, n=3, warmup_steps=1)
    assert window_span(tables(), window) == WindowSpan(first_t=10.0, last_t=13.0, window=window, samples=24.0)


def test_what_is_not_known_is_none() -> None:
    assert window_span(tables(), None) == WindowSpan()
    whole = Window(first_step=0, last_step=4, n=5, warmup_steps=0)
    assert window_span(tables(), whole).first_t is None
    assert window_span(tables(first_t=None), Window(first_step=1, last_step=4, n=4, warmup_steps=1)).first_t is None


def test_samples_that_are_missing_or_zero_are_unknown_and_few_are_not() -> None:
    window = Window(first_step=1, last_step=3, n=3, warmup_steps=1)
    made = tables()
    for reported, samples in ((None, None), (0.0, None), (0.1, pytest.approx(0.6))):
        steps = made.steps.with_columns(samples=pl.lit(reported, dtype=pl.Float64))
        assert window_span(dataclasses.replace(made, steps=steps), window).samples == samples


TABLE = pl.DataFrame({"epoch_sec": [0.0, 1.0, 2.0, 3.0, 4.0]})


@pytest.mark.parametrize(
    ("first_t", "last_t", "rows"),
    [
        (None, None, [0.0, 1.0, 2.0, 3.0, 4.0]),
        (1.0, 3.0, [1.0, 2.0, 3.0]),
        (0.5, 2.5, [1.0, 2.0]),
        (2.0, None, [2.0, 3.0, 4.0]),
        (None, 1.0, [0.0, 1.0]),
        (3.0, 1.0, []),
        (9.0, 10.0, []),
        (-2.0, -1.0, []),
    ],
)
def test_rows_from_the_first_to_the_last_moment_both_inside(first_t: float | None, last_t: float | None, rows: list[float]) -> None:
    assert WindowSpan(first_t=first_t, last_t=last_t).rows(TABLE)["epoch_sec"].to_list() == rows


HOSTS = ("node1", "node2")


@pytest.mark.parametrize(
    ("index", "hosts", "name"),
    [(3, (), 3), (0, HOSTS, "node1:0"), (GPUS_A_HOST + 7, HOSTS, "node2:7"), (2 * GPUS_A_HOST, HOSTS, 2 * GPUS_A_HOST)],
)
def test_name_of_a_gpu(index: float, hosts: tuple[str, ...], name: int | str) -> None:
    assert gpu_name(index, hosts) == name


def test_rows_go_to_their_host_and_a_silent_host_is_left_out() -> None:
    table = pl.DataFrame({"load1": [1.0]})
    assert [(name, rows is table) for name, rows in tables_by_host(table, ())] == [("", True)]
    assert list(tables_by_host(None, HOSTS)) == [] == list(tables_by_host(table.head(0), HOSTS))
    of_host = pl.DataFrame({"host_index": [1, 0, 1], "load1": [1.0, 2.0, 3.0]})
    assert [(name, rows["load1"].to_list()) for name, rows in tables_by_host(of_host, HOSTS)] == [("node1", [2.0]), ("node2", [1.0, 3.0])]
    of_gpu = pl.DataFrame({"gpu_index": [GPUS_A_HOST, GPUS_A_HOST + GPUS_A_HOST - 1], "power_w": [1.0, 2.0]})
    assert [(name, rows["power_w"].to_list()) for name, rows in tables_by_host(of_gpu, HOSTS)] == [("node2", [1.0, 2.0])]


def cause(kind: str, strength: float, text: str = "It was hot.") -> JitterCause:
    return JitterCause(kind=kind, text=text, numbers={"gpu": 1}, strength=strength)


def test_of_each_kind_the_host_that_shows_it_most() -> None:
    weak, strong, other = cause("thermal", 0.2), cause("thermal", 0.9), cause("host_load", 0.1, "Busy.")
    found = list(strongest_by_kind([("node2", weak), ("node1", strong), ("node1", other)]))
    assert [one.text for one in found] == ["Host node1: It was hot. 1 more host shows the same.", "Host node1: Busy."]
    assert found[0].numbers == {"gpu": 1, "host": "node1", "hosts": 2} and found[0].strength == 0.9
    assert list(strongest_by_kind([("", weak)])) == [weak], "without a name there is one host"


def test_numbers_of_any_kind_become_floats() -> None:
    table = pl.DataFrame({"whole": [1, 2], "text": ["1.5", "x"], "float": [0.5, None]})
    assert column(table, "whole").tolist() == [1.0, 2.0] and column(table, "whole").dtype == np.float64
    np.testing.assert_array_equal(column(table, "text"), [1.5, np.nan])
    np.testing.assert_array_equal(column(table, "float"), [0.5, np.nan])


def test_a_column_that_is_not_there_is_as_long_as_the_table_and_empty() -> None:
    np.testing.assert_array_equal(column(pl.DataFrame({"a": [1, 2, 3]}), "b"), [np.nan] * 3)
    assert len(column(pl.DataFrame(), "b")) == 0
    assert finite_mean(np.array([1.0, np.nan, 3.0, np.inf])) == 2.0 and finite_mean(np.array([np.nan])) is None
