"""Measured once: what is kept of an attempt that is over holds until the attempt reads otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign import remembered
from seatrial.campaign.measuring import measure_all
from seatrial.campaign.remembered import Remembered
from seatrial.records.attempt import Attempt
from seatrial.records.charts import Detail
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from tests.unit.analyse import factory
from tests.unit.campaign.test_measuring import write_run
from tests.unit.collect.on_disk import write_attempt

DETAIL = Detail(steps=100, telemetry=100, eta=100)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which runs were measured, one after another."""
    names: list[str] = []

    def measuring(attempts: Sequence[Attempt], detail: Detail | None = None) -> tuple[MeasuredRun, ...]:
        names.extend(attempt.spec.run for attempt in attempts)
        return measure_all(attempts, detail)

    monkeypatch.setattr(remembered, "measure_all", measuring)
    return names


def test_only_what_is_new_is_measured_and_the_answer_is_the_same(tmp_path: Path, measured: list[str]) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2)]
    measuring = Remembered()
    first = measuring(attempts, DETAIL)
    measured.clear()
    attempts.insert(0, write_run(tmp_path, 3))
    again = measuring(attempts, DETAIL)
    assert measured == [attempts[0].spec.run]
    assert [run.attempt for run in again] == attempts and again[1:] == first
    assert [repr(run) for run in again] == [repr(run) for run in measure_all(attempts, DETAIL)]


def test_the_run_under_way_is_looked_at_every_time_and_one_that_reads_otherwise_is_measured_again(
    tmp_path: Path, measured: list[str]
) -> None:
    over, under_way = write_run(tmp_path, 1), write_attempt(tmp_path, factory.spec(repeat=2), outcome=None)
    measuring = Remembered()
    measuring([over, under_way], DETAIL)
    measuring([over, under_way], DETAIL)
    assert measured == [over.spec.run, under_way.spec.run, under_way.spec.run]
    assert over.outcome is not None
    measured.clear()
    failed = replace(over, outcome=replace(over.outcome, outcome=Outcome.FAILED))
    assert measuring([failed], DETAIL)[0].attempt == failed
    measuring([replace(failed, current=False)], DETAIL)
    assert measured == [over.spec.run] * 2


@pytest.mark.parametrize(
    ("wanted", "is_measured"),
    [
        (DETAIL, False),
        (Detail(steps=90, telemetry=80, eta=70), False),
        (Detail(steps=50, telemetry=100, eta=100), True),
        (Detail(steps=101, telemetry=100, eta=100), True),
        (None, True),
    ],
)
def test_what_was_drawn_a_little_finer_is_as_good(tmp_path: Path, measured: list[str], wanted: Detail | None, is_measured: bool) -> None:
    attempts = [write_run(tmp_path, 1)]
    measuring = Remembered()
    measuring(attempts, DETAIL)
    measured.clear()
    measuring(attempts, wanted)
    assert bool(measured) is is_measured
