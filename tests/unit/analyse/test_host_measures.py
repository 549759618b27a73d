"""What each of many hosts did while a run was measured."""

from __future__ import annotations

import polars as pl

from seatrial.analyse.host_measures import host_measures
from seatrial.analyse.uneven_span import Span
from seatrial.records.telemetry import GPUS_A_HOST, TelemetryTables

HOSTS = ("node1", "node2", "node3")
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
AFTER_WARM_UP = Span(first_t=1.0, last_t=2.0)


def test_one_host_has_none_its_figures_are_the_runs() -> None:
    assert host_measures(TelemetryTables(host=HOST, gpu=GPU), AFTER_WARM_UP) == ()


def test_figures_are_those_of_the_window() -> None:
    first, *_ = host_measures(TelemetryTables(host=HOST, gpu=GPU, hosts=HOSTS), AFTER_WARM_UP)
    assert (first.host, first.gpus, first.n) == ("node1", 2, 2)
    assert (first.cpu_busy_mean_pct, first.rss_peak_mib, first.gpu_util_mean_pct) == (17.0, 2.0, 70.0)
    assert (first.net_rx_mean_mib_per_s, first.net_tx_mean_mib_per_s) == (2.0, 0.5)


def test_what_was_not_told_is_none_and_a_host_with_gpus_only_has_them() -> None:
    _, second, third = host_measures(TelemetryTables(host=HOST, gpu=GPU, hosts=HOSTS), AFTER_WARM_UP)
    assert (second.host, second.gpus, second.n) == ("node2", 0, 1)
    assert (second.cpu_busy_mean_pct, second.rss_peak_mib, second.net_rx_mean_mib_per_s, second.gpu_util_mean_pct) == (None,) * 4
    assert (third.host, third.gpus, third.gpu_util_mean_pct, third.n) == ("node3", 1, 50.0, 0)


def test_a_host_that_nobody_sampled_is_left_out() -> None:
    assert [one.host for one in host_measures(TelemetryTables(host=HOST, hosts=HOSTS), AFTER_WARM_UP)] == ["node1", "node2"]
