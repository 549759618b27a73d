"""False positive rate and power of a comparison of two groups of runs.

    python benchmarks/compare_rates.py

    {"benchmark": "compare_rates", "figures": {"aa_different_fraction": 0.04, …, "power_fraction": 0.96}, …}

Every figure is of `seatrial.analyse.comparison.compare_pairs`, on simulated runs with fixed seeds.

aa_different_fraction    share of 2,000 A/A comparisons, spread evenly over the designs, with the verdict FASTER or SLOWER
aa_worst_design_fraction the largest such share of any one design, of 2,000 comparisons each
aa_many_fraction         share of 2,000 campaigns of five equal groups in which any of four comparisons has it (Holm)
power_fraction           share of 2,000 comparisons (CV 1 %, 5 repeats) that find a true 3 % with its sign; the lower of paired and unpaired
power_in_drift_fraction  the same, paired, on a platform whose speed varies by 5 % between rounds

A/A has no equivalence margin (`margin_pct=0`): no verdict is SAME, and the interval alone decides.
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
DIFFERENT = (Relation.FASTER, Relation.SLOWER)


@dataclass(frozen=True)
class Design:
    """How the runs of baseline and candidate are simulated."""

    paired: bool
    runs_a: int
    runs_b: int
    cv: float
    drift: float = 0.0
    """Standard deviation of the log speed from round to round."""


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
    # One-sided 95 % limits of a rate of 0.05 in 2,000 comparisons; of the worst of ten designs, with Bonferroni's correction.
    single, worst_of_ten = (aa_limit(z, num) for z in (1.645, 2.576))
    at_most = {"aa_different_fraction": single, "aa_worst_design_fraction": worst_of_ten, "aa_many_fraction": single}
    report(
        "compare_rates",
        figures,
        at_most=at_most,
        at_least={"power_fraction": 0.8, "power_in_drift_fraction": 0.8},
        quick=quick,
        n=num,
        designs={str(design): round(share, 4) for design, share in zip(DESIGNS, worst, strict=True)},
        note="A/A bounds are 0.05 and the sampling error of 2,000 comparisons: 0.05 + z·sqrt(0.05·0.95/2000), z 1.645, or 2.576 "
        "for the worst of ten designs.",
    )


def aa_limit(z: float, num: int) -> float:
    return round(LEVEL + z * math.sqrt(LEVEL * (1 - LEVEL) / num), 4)


def different_fraction(design: Design, seed: int, comparisons: int) -> float:
    found = (compare_pairs([(a, b)], margin_pct=0.0)[0].relation in DIFFERENT for a, b in simulate(design, 1.0, seed, comparisons))
    return sum(found) / comparisons


def found_fraction(design: Design, seed: int, num: int) -> float:
    """The candidate is faster in half of the comparisons, slower in the others."""
    faster = (compare_pairs([(a, b)])[0].relation is Relation.FASTER for a, b in simulate(design, DIFFERENCE, seed, num // 2))
    slower = (compare_pairs([(a, b)])[0].relation is Relation.SLOWER for a, b in simulate(design, 1 / DIFFERENCE, seed + 50, num // 2))
    return (sum(faster) + sum(slower)) / num


def many_fraction(num: int) -> float:
    """Five equal groups of five repeats, in rounds; four of them are compared with the first."""
    rng, found = np.random.default_rng(300), 0
    for _ in range(num):
        rounds = rng.normal(0, 0.05, 5)
        groups = [simulated_group(f"g{at}", rounds + rng.normal(0, 0.01, 5), "campaign") for at in range(5)]
        found += any(pair.relation in DIFFERENT for pair in compare_pairs([(groups[0], other) for other in groups[1:]], margin_pct=0.0))
    return found / num


def simulate(design: Design, ratio: float, seed: int, comparisons: int) -> Iterator[tuple[ComparedGroup, ComparedGroup]]:
    rng = np.random.default_rng(seed)
    for _ in range(comparisons):
        rounds = (
            rng.normal(0, design.drift, max(design.runs_a, design.runs_b)) if design.drift else np.zeros(max(design.runs_a, design.runs_b))
        )
        logs = [rounds[:n] + rng.normal(0, design.cv, n) for n in (design.runs_a, design.runs_b)]
        campaigns = ("one", "one") if design.paired else ("one", "another")
        yield simulated_group("a", logs[0], campaigns[0]), simulated_group("b", logs[1] + math.log(ratio), campaigns[1])


def simulated_group(name: str, logs: np.ndarray, campaign: str) -> ComparedGroup:
    runs = tuple(
        ComparedRun(
            run=f"{name}_r{at}",
            repeat=at,
            started_t=1000.0 + 100 * at + ord(name[-1]) % 50,
            figures={"samples_per_s": 1000 * math.exp(log)},
        )
        for at, log in enumerate(logs, start=1)
    )
    return ComparedGroup(name=name, group=name, source=campaign, campaign=campaign, runs=runs, machine={"host": "simulated"})


if __name__ == "__main__":
    main()
