"""Comparisons, scaling and history as lines and JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Projection, Relation, Scaling, ScalingPoint
from seatrial.records.measure import Estimate
from seatrial.report.comparison import comparison_lines, drawn, families_json, families_lines, history_lines, scaling_lines
from tests.facts import states

FASTER = Comparison(
    a="mb8",
    b="mb16",
    metric="samples_per_s",
    unit="samples/s",
    higher_is_better=True,
    relation=Relation.FASTER,
    reason="mb16 has 3.2 % more samples/s than mb8.",
    method="paired t on logs, 5 pairs",
    value_a=Estimate(mean=1512.0, low=1503.0, high=1521.0, n=5),
    value_b=Estimate(mean=1561.0, low=1550.0, high=1572.0, n=5),
    ratio=Estimate(mean=1.032, low=1.021, high=1.044, n=5),
    bootstrap_low=1.024,
    bootstrap_high=1.041,
    chance=0.0007,
    detectable_pct=1.5,
    loss=LossParity(verdict=LossVerdict.WORSE, reason="loss 2.5 against 2.3"),
    differs=("micro_batch (8 → 16)",),
    cautions=("Both were measured in a storm.",),
)


def test_the_whole_of_it() -> None:
    assert comparison_lines([FASTER], 100, "mb8 is the plan's baseline.") == [
        "mb16 against mb8: FASTER",
        "  samples/s      mb8 1,512 ±0.6 % (5 runs)   mb16 1,561 ±0.7 % (5 runs)",
        "  ratio          1.032   95 % 1.021 to 1.044   bootstrap 1.024 to 1.041   p 0.0007",
        "                 ························[·····│·····]······├─────●──────┤····",
        "  would show     1.5 % four times in five (paired t on logs, 5 pairs)",
        "  loss           WORSE: loss 2.5 against 2.3",
        "  differs in     micro_batch (8 → 16)",
        "  caution        Both were measured in a storm.",
        "mb16 has 3.2 % more samples/s than mb8.",
        "",
        "│ is a ratio of 1, [ ] the margin of 1 % that does not matter.",
        "",
        "mb8 is the plan's baseline.",
    ]


def test_what_is_not_there_is_not_drawn() -> None:
    bare = dataclasses.replace(FASTER, ratio=None, detectable_pct=None, loss=None, value_b=None, differs=(), cautions=())
    assert comparison_lines([bare], 100)[1:] == [
        "  samples/s      mb8 1,512 ±0.6 % (5 runs)   mb16 no counted run",
        "mb16 has 3.2 % more samples/s than mb8.",
    ]


def test_narrow_terminals_and_odd_names() -> None:
    odd = dataclasses.replace(FASTER, a="a\x1b[31m\nb")
    lines = comparison_lines([odd], 44)
    assert all(len(line) <= 44 for line in lines[2:]) and not any("\x1b" in line or "\n" in line for line in lines)


def test_a_figure_is_not_broken_over_lines() -> None:
    reason = "b has 17.7 % fewer samples/s than a (95 % interval −18.1 % to −17.3 %; paired t on logs, 5 pairs, p < 0.0001)."
    for width in range(40, 120):
        text = comparison_lines([dataclasses.replace(FASTER, reason=reason, chance=1e-6)], width)
        assert any("p < 0.0001" in line for line in text[-4:]) and not any(line.endswith((" p", "p <")) for line in text)
        assert not any(line.strip().startswith("%") for line in text)


def test_an_interval_has_its_own_level() -> None:
    lines = comparison_lines([dataclasses.replace(FASTER, comparisons=6, confidence=1 - 0.05 / 6)], 100)
    assert "99.17 % 1.021 to 1.044" in lines[2] and not any("95 %" in line for line in lines)


def test_one_is_in_the_middle_and_a_wide_interval_fits() -> None:
    assert drawn(Estimate(mean=1.0, low=0.5, high=2.0, n=2), 1.0, 21) == "·├────────●────────┤·"
    assert drawn(Estimate(mean=1.0), 1.0, 21)[10] == "●"


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


def test_families_are_one_below_the_other() -> None:
    families = [dataclasses.replace(FOUND, family=name) for name in ("mb=8", "mb=16")]
    lines = families_lines(families, 100)
    assert lines[0] == "samples/s over GPUs (mb=8)" and lines[len(lines) // 2 : len(lines) // 2 + 2] == ["", "samples/s over GPUs (mb=16)"]
    assert families_lines([FOUND], 100) == scaling_lines(FOUND, 100)
    alone = families_json([FOUND])
    assert alone["points"][1]["efficiency"]["mean"] == 0.9 and alone["cautions"] == list(FOUND.cautions)
    assert [one["family"] for one in families_json(families)["families"]] == ["mb=8", "mb=16"]


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in scaling_lines(FOUND, width))


def test_names_of_folders_cannot_move_the_cursor() -> None:
    odd = Scaling(metric="samples_per_s", unit="samples/s", points=(point(1, 1.0, group="a\x1b[2J\nb"),), reason="one size")
    assert not any("\x1b" in line or "\n" in line for line in scaling_lines(odd, 100))


def test_two_sizes_and_strong_scaling_are_reported_in_the_fit() -> None:
    two = Scaling(
        metric="samples_per_s", unit="samples/s", points=(point(1, 1.0), point(2, 0.9, weak=False)), compute_ms=100.0, bandwidth_ms=20.0
    )
    text = " ".join(scaling_lines(two, 100))
    assert "or all of it latency" in text and "for the work of one GPU at the smallest number" in text


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
    (none,) = history_lines([], "h.jsonl")
    assert states(none, "h.jsonl", "`seatrial history add OUT`")
    assert states(history_lines([row()], "h.jsonl", unreadable=2)[-1], "2 lines", "h.jsonl", "cannot be read")
    assert "no rows that can be read" in history_lines([], "h.jsonl", unreadable=1)[0]
