"""Many attempts measured by workers, against one after another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.analyse.charts import run
from seatrial.campaign import measuring
from seatrial.records.attempt import Attempt
from seatrial.records.charts import Detail
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events


def write_run(out: Path, repeat: int, *, loss: object = 3.5) -> Attempt:
    attempt = write_attempt(out, factory.spec(repeat=repeat, ranks=2))
    for rank in range(2):
        lines = [
            event(attempt, rank=rank, step=step, iter_ms=50.0 + repeat + rank, fwd_ms=20.1, bwd_ms=25.3, loss=loss) for step in range(30)
        ]
        write_events(attempt, rank, "\n".join(lines) + "\n" + lines[0][:40])
    return attempt


def test_workers_say_the_same_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = [write_run(tmp_path, repeat, loss="nan" if repeat == 3 else 3.5) for repeat in range(1, 6)]
    attempts.append(write_attempt(tmp_path, factory.spec(repeat=6), outcome=None))
    detail = Detail(steps=20, telemetry=8, eta=10)
    one_by_one = measuring.measure_all(attempts, detail)
    monkeypatch.setattr(measuring, "LEAST_FOR_A_WORKER", 1)
    monkeypatch.setattr(measuring, "MOST_WORKERS", 2)
    monkeypatch.setattr(measuring, "usable_cpu_count", lambda: 2)
    monkeypatch.setattr(measuring, "HANDED_OUT_AT_ONCE", 2)

    by_workers = measuring.measure_all(attempts, detail)

    assert [run.attempt.spec.run for run in by_workers] == [attempt.spec.run for attempt in attempts]
    assert [repr(run) for run in by_workers] == [repr(run) for run in one_by_one]
    assert by_workers[-1].measure is None
    assert by_workers[2].measure is not None
    assert by_workers[2].measure.loss_falls is False
    assert by_workers[0].charts is not None
    assert len(by_workers[0].charts.tables["steps"]["step"]) <= 20


def test_only_what_counts_is_drawn_and_only_where_it_is_asked_for(tmp_path: Path) -> None:
    attempt, detail = write_run(tmp_path, 1), Detail(steps=20, telemetry=8, eta=10)
    assert measuring.measure(attempt).charts is None
    assert measuring.measure(replace(attempt, current=False), detail).charts is None
    assert measuring.measure(attempt, detail).charts is not None


def test_a_run_that_cannot_be_drawn_keeps_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("an odd run")

    attempt = write_run(tmp_path, 1)
    plain = measuring.measure(attempt).measure
    monkeypatch.setattr(run, "run_charts", fails)
    found = measuring.measure(attempt, Detail(steps=20, telemetry=8, eta=10))
    assert plain is not None and found.measure is not None
    assert found.charts is None
    assert replace(found.measure, cautions=plain.cautions) == plain
    (caution,) = found.measure.cautions[len(plain.cautions) :]
    assert (caution.kind, caution.subject) == ("not_drawn", attempt.spec.run)
    assert "an odd run" in caution.text
