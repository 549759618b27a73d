"""Comparisons as people read them."""

from __future__ import annotations

import dataclasses

from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Relation
from seatrial.records.measure import Estimate
from seatrial.report.comparison_text import comparison_lines, drawn

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
        "│ is a ratio of 1, [ ] the 1 % that does not matter.",
        "",
        "mb8 is the plan's baseline.",
    ]


def test_what_is_not_there_is_not_drawn() -> None:
    bare = dataclasses.replace(FASTER, ratio=None, detectable_pct=None, loss=None, value_b=None, differs=(), cautions=())
    assert comparison_lines([bare], 100)[1:] == [
        "  samples/s      mb8 1,512 ±0.6 % (5 runs)   mb16 no run that counts",
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
