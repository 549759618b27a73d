"""Rows of history as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.report.history_text import history_lines


def row(**changes: Any) -> dict[str, Any]:
    values = {
        "row": 3,
        "names": ["v100-bf16"],
        "group": "mb16",
        "campaign": "/home/me/stage1",
        "taken_t": 1_794_770_000.0,
        "runs": 5,
        "throughput": 1561.2,
        "unit": "samples/s",
        "machine": {"host": "node-1", "gpu_name": "V100-32GB"},
    }
    return {**values, **changes}


def test_two_lines_a_row() -> None:
    assert history_lines([row(), row(row=12, names=[], throughput=None, unit=None, machine={}, taken_t=0)], "h.jsonl") == [
        "row  name       group  runs  throughput       taken",
        "  3  v100-bf16  mb16      5  1,561 samples/s  2026-11-15T19:13:20Z",
        "     node-1, V100-32GB, /home/me/stage1",
        " 12  –          mb16      5  –                –",
        "     /home/me/stage1",
    ]


@pytest.mark.parametrize("width", [80, 100])
def test_long_names_are_cut_and_fit(width: int) -> None:
    long = row(names=["a" * 60, "b"], group="sweep_z0_mb128_nw6_pf4" * 3, campaign="/deep" * 40 + "/out")
    lines = history_lines([long, row()], "h.jsonl", width)
    assert all(len(line) <= width for line in lines) and any("…" in line for line in lines)
    assert lines[2].endswith("/out")


def test_nothing_and_what_cannot_be_read() -> None:
    assert history_lines([], "h.jsonl") == ["h.jsonl has no rows yet; `seatrial history add OUT` keeps a campaign's groups"]
    assert history_lines([row()], "h.jsonl", unreadable=2)[-1] == "2 lines of h.jsonl cannot be read, and what they held is not shown"
    assert "no rows that can be read" in history_lines([], "h.jsonl", unreadable=1)[0]
