"""The figures that groups are ranked and compared by: name, unit, direction, and what each means."""

from __future__ import annotations

from dataclasses import dataclass

ANY_THROUGHPUT = "throughput"
"""The first of THROUGHPUT that most groups have."""
ITER_P50 = "tail_mean_iter_p50_ms_mean"
STABILITY_SCORE = "stability_score"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure to order groups by."""

    name: str
    """Of `RunMeasure` and of the figures of groups and compared runs."""
    unit: str
    higher_is_better: bool
    meaning: str
    is_rate: bool = False
    """Work per second, all ranks together."""
    stage1_column: str | None = None
    """Set where the figure is one of stage 1's columns, which are of groups, not of runs, and have no interval."""


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(name="samples_per_s", unit="samples/s", higher_is_better=True, is_rate=True, meaning="samples a second, by wall clock"),
        Figure(name="tokens_per_s", unit="tokens/s", higher_is_better=True, is_rate=True, meaning="tokens a second, by wall clock"),
        Figure(
            name="audio_s_per_s",
            unit="s of audio/s",
            higher_is_better=True,
            is_rate=True,
            meaning="seconds of audio a second, by wall clock, where the workload reports the length of a sample",
        ),
        Figure(name="steps_per_s", unit="steps/s", higher_is_better=True, is_rate=True, meaning="steps a second, by wall clock"),
        Figure(name="wall_p50_ms", unit="ms a step", higher_is_better=False, meaning="median wall time of a step"),
        Figure(name="wall_p90_over_p50", unit="p90/p50", higher_is_better=False, meaning="p90 over p50 of the wall time of a step"),
        Figure(name="startup_s", unit="s to the first step", higher_is_better=False, meaning="launch to the end of the first step"),
        Figure(name="duration_s", unit="s a run", higher_is_better=False, meaning="length of the run"),
        Figure(
            name="iter_p50",
            unit="ms iter p50",
            higher_is_better=False,
            meaning="lowest p50 of the sum of phases, averaged over the last timing points",
            stage1_column=ITER_P50,
        ),
        Figure(
            name="stability",
            unit="stability score",
            higher_is_better=False,
            meaning="lowest stability score: p90 over p50 of the sum of phases, unstable runs counted against it",
            stage1_column=STABILITY_SCORE,
        ),
        Figure(
            name="balanced",
            unit="balanced place",
            higher_is_better=False,
            meaning="lowest sum of the places by iter_p50 and by stability",
            stage1_column="rank_balanced",
        ),
    )
}
"""By name, in the order of tables."""
MEASURED = tuple(name for name, figure in FIGURES.items() if figure.stage1_column is None)
"""Figures of single runs."""
RATES = tuple(name for name, figure in FIGURES.items() if figure.is_rate)
THROUGHPUT = (*RATES, "duration_s")
"""By preference."""
