"""How often a comparison calls equals different, and how often it finds a difference that is there.

    python benchmarks/compare_rates.py

    {"benchmark": "compare_rates", "figures": {"aa_different_fraction": 0.04, …, "power_fraction": 0.96}, …}

Every figure goes through `seatrial.analyse.comparison.compare_pairs`, with made-up runs and fixed seeds.

aa_different_fraction    of 2,000 A/A comparisons, spread evenly over the designs, those called FASTER or SLOWER
aa_worst_design_fraction the largest such share of any single design, of 2,000 comparisons each
aa_many_fraction         of 2,000 campaigns of five equal groups, those in which any of four comparisons is (Holm)
power_fraction           of 2,000 comparisons at CV 1 % and 5 repeats, a true 3 % found in the right direction; the lower of paired and not
power_in_drift_fraction  the same, paired, on a platform whose speed wanders by 5 % between rounds

A/A is judged without a margin (`margin_pct=0`), so that nothing is called SAME and the interval alone answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from outcome import parser, report
from seatrial.analyse.comparison import compare_pairs
from seatrial.records.comparison import ComparedGroup, ComparedRun, Relation

COMPARISONS, QUICK_COMPARISONS = 2000, 40
LEVEL = 0.05
DIFFERENCE = 1.03
APART = (Relation.FASTER, Relation.SLOWER)


@dataclass(frozen=True)
class Design:
    """How the runs of both sides are made."""

    paired: bool
    runs_a: int
    runs_b: int
    cv: float
    drift: float = 0.0
    """Standard deviation on logs of what a whole round shares."""


DESIGNS = (
    Design(True, 2, 2, 0.01),
    Design(True, 3, 3, 0.03, drift=0.05),
    Design(True, 5, 5, 0.01, drift=0.05),
    Design(True, 10, 10, 0.10, drift=0.02),
    Design(False, 2, 2, 0.01),
    Design(False, 3, 3, 0.03),
    Design(False, 5, 5, 0.01),
    Design(False, 3, 5, 0.01),
    Design(False, 5, 8, 0.10),
    Design(False, 2, 10, 0.01),
)


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    num = QUICK_COMPARISONS if quick else COMPARISONS
    worst = [different_fraction(design, seed, num) for seed, design in enumerate(DESIGNS)]
    spread = [different_fraction(design, 100 + seed, num // len(DESIGNS)) for seed, design in enumerate(DESIGNS)]
    power = [found_fraction(Design(paired, 5, 5, 0.01), 200 + paired, num) for paired in (True, False)]
    figures = {
        "aa_different_fraction": round(sum(spread) / len(spread), 4),
        "aa_worst_design_fraction": round(max(worst), 4),
        "aa_many_fraction": round(many_fraction(num), 4),
        "power_fraction": round(min(power), 4),
        "power_in_drift_fraction": round(found_fraction(Design(True, 5, 5, 0.01, drift=0.05), 202, num), 4),
    }
    # A true rate of 0.05 shows up to this much in 2,000 comparisons, 19 times in 20; for the worst of ten, each gets a tenth of that.
    one, any_of_ten = (allowed(z, num) for z in (1.645, 2.576))
    at_most = {"aa_different_fraction": one, "aa_worst_design_fraction": any_of_ten, "aa_many_fraction": one}
    report(
        "compare_rates",
        figures,
        at_most=at_most,
        at_least={"power_fraction": 0.8, "power_in_drift_fraction": 0.8},
        quick=quick,
        n=num,
        designs={str(design): round(share, 4) for design, share in zip(DESIGNS, worst, strict=True)},
        note="A/A bounds are 0.05 and what 2,000 comparisons allow for their own error: 0.05 + z·sqrt(0.05·0.95/2000), z 1.645, or 2.576 "
        "for the worst of ten designs.",
    )


def allowed(z: float, num: int) -> float:
    return round(LEVEL + z * math.sqrt(LEVEL * (1 - LEVEL) / num), 4)


def different_fraction(design: Design, seed: int, comparisons: int) -> float:
    found = (compare_pairs([(a, b)], margin_pct=0.0)[0].relation in APART for a, b in sides(design, 1.0, seed, comparisons))
    return sum(found) / comparisons


def found_fraction(design: Design, seed: int, num: int) -> float:
    """Half of the time B is the slower one."""
    faster = (compare_pairs([(a, b)])[0].relation is Relation.FASTER for a, b in sides(design, DIFFERENCE, seed, num // 2))
    slower = (compare_pairs([(a, b)])[0].relation is Relation.SLOWER for a, b in sides(design, 1 / DIFFERENCE, seed + 50, num // 2))
    return (sum(faster) + sum(slower)) / num


def many_fraction(num: int) -> float:
    """Five equal groups of five repeats, in rounds, four of them against the first."""
    random, found = np.random.default_rng(300), 0
    for _ in range(num):
        rounds = random.normal(0, 0.05, 5)
        groups = [side(f"g{at}", rounds + random.normal(0, 0.01, 5), "campaign") for at in range(5)]
        found += any(one.relation in APART for one in compare_pairs([(groups[0], other) for other in groups[1:]], margin_pct=0.0))
    return found / num


def sides(design: Design, ratio: float, seed: int, comparisons: int) -> Iterator[tuple[ComparedGroup, ComparedGroup]]:
    random = np.random.default_rng(seed)
    for _ in range(comparisons):
        rounds = (
            random.normal(0, design.drift, max(design.runs_a, design.runs_b))
            if design.drift
            else np.zeros(max(design.runs_a, design.runs_b))
        )
        logs = [rounds[:n] + random.normal(0, design.cv, n) for n in (design.runs_a, design.runs_b)]
        campaigns = ("one", "one") if design.paired else ("one", "another")
        yield side("a", logs[0], campaigns[0]), side("b", logs[1] + math.log(ratio), campaigns[1])


def side(name: str, logs: np.ndarray, campaign: str) -> ComparedGroup:
    runs = tuple(
        ComparedRun(
            run=f"{name}_r{at}",
            repeat=at,
            started_t=1000.0 + 100 * at + ord(name[-1]) % 50,
            figures={"samples_per_s": 1000 * math.exp(log)},
        )
        for at, log in enumerate(logs, start=1)
    )
    return ComparedGroup(name=name, group=name, source=campaign, campaign=campaign, runs=runs, machine={"host": "made-up"})


if __name__ == "__main__":
    main()
