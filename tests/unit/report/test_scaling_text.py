"""Scaling as text and as JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from seatrial.records.comparison import Projection, Scaling, ScalingPoint
from seatrial.records.measure import Estimate
from seatrial.report.scaling_text import families_json, families_lines, scaling_json, scaling_lines


def point(gpus: int, share: float, *, weak: bool = True, group: str = "mb16") -> ScalingPoint:
    per_gpu = 160.0 * share
    near = None if gpus == 1 else share * 0.99
    return ScalingPoint(
        gpus=gpus,
        nodes=1,
        group=group,
        source=f"out{gpus}x",
        value=Estimate(mean=per_gpu * gpus, low=per_gpu * gpus * 0.99, high=per_gpu * gpus * 1.01, n=3),
        per_gpu=Estimate(mean=per_gpu, n=3),
        efficiency=Estimate(mean=share, low=near, high=None if near is None else share * 1.01, n=3),
        step_ms=100.0 / share,
        runs=3,
        weak=weak,
    )


FOUND = Scaling(
    metric="samples_per_s",
    unit="samples/s",
    points=(point(1, 1.0), point(2, 0.9), point(4, 0.8)),
    compute_ms=100.0,
    bandwidth_ms=20.0,
    latency_ms=2.0,
    projections=(Projection(gpus=8, value=900.0, low=880.0, high=930.0, efficiency=0.7, bound_by="compute"),),
    reason="By the runs on 1, 2, 4 GPUs, a step on 8 is bound by compute.",
    cautions=("All sides ran on one node.",),
)


def test_the_whole_text() -> None:
    assert scaling_lines(FOUND, 100) == [
        "samples/s over GPUs",
        "GPUs         total  per GPU  efficiency          95 %  step ms  runs  group",
        "   1  160.0 ±1.0 %    160.0     100.0 %             –    100.0     3  mb16",
        "   2  288.0 ±1.0 %    144.0      90.0 %  89.1 to 90.9    111.1     3  mb16",
        "   4  512.0 ±1.0 %    128.0      80.0 %  79.2 to 80.8    125.0     3  mb16",
        "",
        "     1 ████████████████████████████████████████ 100.0 %",
        "     2 ████████████████████████████████████ 90.0 %",
        "     4 ████████████████████████████████ 80.0 %",
        "",
        "A step on N GPUs, by 9 runs at 3 numbers of GPUs: 100.0 ms of compute + 20.00 ms × (N − 1)/N of",
        "exchange (bandwidth) + 2.000 ms × log2 N (latency).",
        "",
        "     8 GPUs: 900.0 samples/s (95 % 880.0 to 930.0), 70.0 % efficiency, bound by compute",
        "",
        "By the runs on 1, 2, 4 GPUs, a step on 8 is bound by compute.",
        "Caution: All sides ran on one node.",
    ]


def test_nodes_are_shown_where_there_are_several() -> None:
    two = dataclasses.replace(FOUND, points=(point(1, 1.0), dataclasses.replace(point(8, 0.7), nodes=2)))
    assert scaling_lines(two, 100)[1].startswith("GPUs  nodes  ")


def test_ranks_without_gpus_are_called_so() -> None:
    ranks = dataclasses.replace(FOUND, worker="rank", reason="")
    assert "GPU" not in " ".join(scaling_lines(ranks, 100)) and "ranks         total  per rank" in " ".join(scaling_lines(ranks, 100))


def test_families_stand_one_below_the_other() -> None:
    families = [dataclasses.replace(FOUND, family=name) for name in ("mb=8", "mb=16")]
    lines = families_lines(families, 100)
    assert lines[0] == "samples/s over GPUs (mb=8)" and lines[len(lines) // 2 : len(lines) // 2 + 2] == ["", "samples/s over GPUs (mb=16)"]
    assert families_lines([FOUND], 100) == scaling_lines(FOUND, 100)
    assert families_json([FOUND]) == scaling_json(FOUND)
    assert [one["family"] for one in families_json(families)["families"]] == ["mb=8", "mb=16"]


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in scaling_lines(FOUND, width))


def test_names_of_folders_cannot_move_the_cursor() -> None:
    odd = Scaling(metric="samples_per_s", unit="samples/s", points=(point(1, 1.0, group="a\x1b[2J\nb"),), reason="one size")
    assert not any("\x1b" in line or "\n" in line for line in scaling_lines(odd, 100))


def test_without_points_only_the_reason_is_left() -> None:
    assert scaling_lines(Scaling(metric="throughput", unit="", points=(), reason="No run tells it."), 80) == [
        "throughput over GPUs",
        "No run tells it.",
    ]


def test_two_sizes_and_strong_scaling_are_told_in_the_fit() -> None:
    two = Scaling(
        metric="samples_per_s", unit="samples/s", points=(point(1, 1.0), point(2, 0.9, weak=False)), compute_ms=100.0, bandwidth_ms=20.0
    )
    text = " ".join(scaling_lines(two, 100))
    assert "or all of it latency" in text and "for the work of one GPU at the smallest number" in text


def test_json_has_the_same_numbers() -> None:
    plain = json.loads(json.dumps(scaling_json(FOUND)))
    assert plain["points"][1]["efficiency"]["mean"] == 0.9 and plain["projections"][0]["gpus"] == 8
    assert plain["reason"] == FOUND.reason and plain["cautions"] == list(FOUND.cautions)
