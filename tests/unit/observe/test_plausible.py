"""Samples that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.observe.plausible import impossible_column


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"util_gpu_pct": 4000}, "util_gpu_pct"),
        ({"util_gpu_pct": -1}, "util_gpu_pct"),
        ({"util_gpu_pct": 100, "util_mem_pct": 101}, "util_mem_pct"),
        ({"power_w": -0.1}, "power_w"),
        ({"power_w": 4_294_967.295}, "power_w"),
        ({"mem_used_mib": 81921, "mem_total_mib": 81920}, "mem_used_mib"),
        ({"mem_available_kib": 11, "mem_total_kib": 10}, "mem_available_kib"),
        ({"cpu_steal_pct": 100.5}, "cpu_steal_pct"),
        ({"net_rx_kib_per_s": -3.0}, "net_rx_kib_per_s"),
        ({"temp_c": 255}, "temp_c"),
    ],
)
def test_impossible(row: dict[str, Any], column: str) -> None:
    assert impossible_column(row) == column


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"util_gpu_pct": None, "gpu_name": "H200"},
        {"util_gpu_pct": 0, "power_w": 0.0, "temp_c": -4},
        {"util_gpu_pct": 100, "power_w": 1200.0},
        {"tree_cpu_pct": 6400.0},
        {"mem_used_mib": 81920, "mem_total_mib": 81920},
        {"mem_used_mib": 1, "mem_total_mib": None},
    ],
)
def test_possible(row: dict[str, Any]) -> None:
    assert impossible_column(row) is None
