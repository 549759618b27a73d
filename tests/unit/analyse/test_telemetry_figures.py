"""Figures over the measured window, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from seatrial.analyse.telemetry import telemetry_figures
from seatrial.records.columns import TELEMETRY_FIGURES
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables

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
    values = {"account": ACCOUNT, "first_t": None, "last_t": None, "samples": None, **window}
    return dict(telemetry_figures(TelemetryTables(gpu=gpu, host=host), **values))


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


def test_the_whole_run_counts_where_the_window_is_not_known() -> None:
    assert _figures(_gpu([0, 1], util_gpu_pct=[50, 100]))["gpu_util_mean_pct"] == 75.0


def test_energy_is_what_the_counters_grew_by_over_exactly_the_window() -> None:
    gpu = _gpu([0, 10, 20], gpus=2, energy_j=[1000.0, 4000.0, 7000.0], power_w=[1.0, 1.0, 1.0])
    found = _figures(gpu, first_t=5.0, last_t=15.0, samples=100.0)
    assert found["gpu_energy_j"] == pytest.approx(2 * 3000.0), "both GPUs, and not only between whole samples"
    assert found["gpu_joules_per_sample"] == pytest.approx(60.0)
    assert found["telemetry_note"] is None


def test_without_a_counter_power_over_time_is_energy_and_that_is_said() -> None:
    gpu = _gpu([0, 10, 20], power_w=[100.0, 200.0, None], energy_j=[None, None, None])
    found = _figures(gpu, first_t=0.0, last_t=10.0)
    assert found["gpu_energy_j"] == pytest.approx(1500.0)
    assert found["telemetry_note"] == "energy is power over time, since the driver's counter does not cover the window"


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


def test_free_clocks_are_told_from_a_driver_that_does_not_say() -> None:
    gpu = _gpu([0, 1], throttle_reasons=[None, None])
    assert _figures(gpu)["gpu_throttled_pct"] == 0.0
    silent = replace(ACCOUNT, gpu=SamplerAccount(interval_s=1.0, rows=2, missing=("throttle_reasons",)))
    assert _figures(gpu, account=silent)["gpu_throttled_pct"] is None


def test_a_window_without_a_sample_has_no_figures_and_says_so() -> None:
    gpu, host = _gpu([0, 100], util_gpu_pct=[1, 2]), pl.DataFrame({"epoch_sec": [0.0, 100.0], "rss_kib": [1.0, 2.0]})
    found = _figures(gpu, host, first_t=40.0, last_t=60.0)
    assert found["gpu_util_mean_pct"] is None and found["host_rss_peak_mib"] is None
    assert found["telemetry_note"] == "no GPU sample fell into the measured window; no host sample fell into the measured window"


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


def test_notes_of_both_samplers_are_kept() -> None:
    account = TelemetryAccount(
        gpu=SamplerAccount(interval_s=1.0, empty=True, expected=True, note="no GPU"), host=SamplerAccount(interval_s=1.0)
    )
    found = _figures(account=account)
    assert found["telemetry_note"] == "GPU: no GPU" and found["gpu_power_mean_w"] is None


def test_no_telemetry_at_all_is_nothing() -> None:
    assert telemetry_figures(TelemetryTables(), None, None, None, None) == {}


def test_a_killed_run_has_figures_without_an_account() -> None:
    found = _figures(_gpu([0, 1], util_gpu_pct=[50, 100], throttle_reasons=["", "hw_slowdown"]), account=None)
    assert (found["gpu_util_mean_pct"], found["gpu_throttled_pct"], found["telemetry_gaps"]) == (75.0, 50.0, None)


def test_the_cost_of_a_sampler_that_was_at_work_for_less_than_a_second() -> None:
    account = TelemetryAccount(host=SamplerAccount(interval_s=0.1, cpu_s=0.01, wall_s=0.5), gpu=SamplerAccount(interval_s=0.1))
    found = telemetry_figures(TelemetryTables(), account, None, None, None)
    assert found["telemetry_cpu_pct"] == pytest.approx(2.0), "one that was never at work costs nothing"
