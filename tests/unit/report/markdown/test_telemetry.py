"""The section of summary.md on what the machine did."""

from __future__ import annotations

from dataclasses import replace

from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.report.digest.telemetry import EXPLAINED, NOTHING
from seatrial.report.markdown.telemetry import telemetry_section
from tests.unit.report import factory


def sampled(results: CampaignResults, *figures: dict[str, Cell]) -> CampaignResults:
    """The same campaign, the telemetry of its measured runs taken from `figures` in turn."""
    cells = iter(figures * len(results.runs))
    runs = [replace(run, measure=replace(run.measure, telemetry=next(cells))) if run.measure else run for run in results.runs]
    return replace(results, runs=tuple(runs))


def test_without_samples_it_says_so() -> None:
    assert list(telemetry_section(factory.results())) == ["## What the machine did", NOTHING]


def test_means_are_averaged_peaks_are_highest_and_counts_are_summed() -> None:
    low: dict[str, Cell] = {"gpu_util_mean_pct": 80.0, "gpu_temp_max_c": 60, "telemetry_gaps": 1, "telemetry_cpu_pct": 0.25}
    high: dict[str, Cell] = {"gpu_util_mean_pct": 90.0, "gpu_temp_max_c": 70, "telemetry_gaps": 2, "telemetry_cpu_pct": 0.75}

    _, text, explained = telemetry_section(sampled(factory.results(), low, high))

    header, _, *rows = text.splitlines()
    assert header == "| group | GPU % | hottest °C | gaps | own cost % | runs |"
    assert [row for row in rows if row.endswith("| 85.00 | 70 | 3 | 0.5000 | 2 |")]
    assert explained == EXPLAINED
