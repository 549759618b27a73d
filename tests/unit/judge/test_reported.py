"""Figures of the workload's own: in the unit that is asked for, or not at all."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seatrial.judge.reported import is_reported, reported_reading
from seatrial.records.criteria_catalog import metric_entry
from seatrial.records.health import ReportedFigure
from seatrial.records.verdict import Criterion, Finding, Verdict
from tests.unit.judge.campaigns import changed, clean_runs, finding

ROUGE = Criterion(metric="reported.rouge1", scope="every_run", at_least=43)
LATENCY = Criterion(metric="reported.wait", scope="every_run", at_most=20, unit="ms")


def told(criterion: Criterion, value: float, **changes: Any) -> Finding:
    figure = ReportedFigure(value=value, **{"n": 13, "file": "events_rank0.jsonl", **changes})
    run = changed(clean_runs()[0], reported={criterion.metric.removeprefix("reported."): figure})
    return finding(criterion, runs=[run])


def test_a_figure_that_the_run_reported() -> None:
    found = told(ROUGE, 44.0)
    assert (found.verdict, found.evidence[0].n, found.evidence[0].file) == (Verdict.PASS, 13, "mb16_nw2_r1/attempt-1/events_rank0.jsonl")
    assert "44 in mb16_nw2_r1 (rank 0's)" in found.text
    absent = finding(ROUGE)
    assert absent.verdict is Verdict.INCONCLUSIVE and 'probe.figure("rouge1", value)' in absent.text


@pytest.mark.parametrize(
    ("value", "unit", "verdict", "words"),
    [
        (1.5, "s", Verdict.FAIL, "1,500 ms in mb16_nw2_r1 (rank 0's, told as 1.5 s)"),
        (0.015, "s", Verdict.PASS, "15 ms in mb16_nw2_r1"),
        (15.0, "ms", Verdict.PASS, "15 ms in mb16_nw2_r1 (rank 0's)"),
        (15.0, "widgets", Verdict.INCONCLUSIVE, "wait is told in widgets, asked in ms"),
        (15.0, "", Verdict.INCONCLUSIVE, 'told without a unit, asked in ms; tell it: `probe.figure("wait", value, unit="ms")`'),
        (math.nan, "ms", Verdict.INCONCLUSIVE, "it told nan"),
    ],
)
def test_units_are_converted_or_refused(value: float, unit: str, verdict: Verdict, words: str) -> None:
    found = told(LATENCY, value, unit=unit)
    assert found.verdict is verdict and words in found.text


def test_a_name_of_the_catalogue_says_its_unit() -> None:
    criterion = Criterion(metric="ttft_p99_ms", scope="every_run", at_most=20, unit="ms")
    assert told(criterion, 15.0).verdict is Verdict.PASS
    assert told(criterion, 15.0, unit="s").verdict is Verdict.FAIL


def test_without_a_unit_of_the_criterion_the_figure_s_own_is_shown() -> None:
    assert "44 points in mb16_nw2_r1" in told(ROUGE, 44.0, unit="points").text


def test_only_figures_of_the_workloads_own_are_reported() -> None:
    reported, steps = metric_entry("reported.rouge1"), metric_entry("steps_per_s")
    assert reported is not None and steps is not None
    assert is_reported(reported) and not is_reported(steps)


def test_a_rank_is_named_where_there_are_several_and_a_figure_without_a_file_has_the_table_s() -> None:
    entry = metric_entry("reported.rouge1")
    assert entry is not None
    for ranks, detail in ((2, "rank 3's"), (1, "")):
        figure = ReportedFigure(value=44.0, n=1, file="events_rank3.jsonl")
        run = changed(clean_runs()[0], reported={"rouge1": figure}, world_size=ranks)
        assert run.measure is not None and reported_reading(ROUGE, entry, run, run.measure).detail == detail
    run = changed(clean_runs()[0], reported={"rouge1": ReportedFigure(value=44.0, n=7, file="", unit="ratio")})
    assert run.measure is not None
    found = reported_reading(ROUGE, entry, run, run.measure)
    assert (found.file, found.unit, found.window, found.n) == ("per_run_metrics.csv", "", "as the run reported it", 7)
