"""Attempts measured: one by one, by workers, from the cache, and while they run."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.attempts import read_campaign
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.columns import Detail
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.results import workers
from seatrial.results.cache import MeasureCache
from seatrial.results.recompute import RunRecorder, gather_results, recompute
from seatrial.results.workers import add_live_charts, draw_running, launched_t
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events
from tests.unit.results.campaigns import write_campaign

DETAIL = Detail(steps=100, telemetry=100, eta=100)
COARSE = Detail(steps=20, telemetry=8, eta=10)


def write_run(out: Path, repeat: int, *, loss: object = 3.5) -> Attempt:
    attempt = write_attempt(out, factory.spec(repeat=repeat, ranks=2))
    for rank in range(2):
        lines = [
            event(attempt, rank=rank, step=step, iter_ms=50.0 + repeat + rank, fwd_ms=20.1, bwd_ms=25.3, loss=loss) for step in range(30)
        ]
        write_events(attempt, rank, "\n".join(lines) + "\n" + lines[0][:40])
    return attempt


def test_workers_find_the_same_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = [write_run(tmp_path, repeat, loss="nan" if repeat == 3 else 3.5) for repeat in range(1, 6)]
    attempts.append(write_attempt(tmp_path, factory.spec(repeat=6), outcome=None))
    one_by_one = workers.measure_all(attempts, COARSE)
    monkeypatch.setattr(workers, "MIN_ATTEMPTS_PER_WORKER", 1)
    monkeypatch.setattr(workers, "MAX_WORKERS", 2)
    monkeypatch.setattr(workers, "usable_cpu_count", lambda: 2)
    monkeypatch.setattr(workers, "BATCH_SIZE", 2)

    by_workers = workers.measure_all(attempts, COARSE)

    assert [run.attempt.spec.run for run in by_workers] == [attempt.spec.run for attempt in attempts]
    assert [repr(run) for run in by_workers] == [repr(run) for run in one_by_one]
    assert by_workers[-1].measure is None
    assert by_workers[2].measure is not None and by_workers[2].measure.loss_falls is False
    assert by_workers[0].charts is not None and len(by_workers[0].charts.tables["steps"]["step"]) <= 20


def test_only_current_attempts_are_drawn_and_only_where_asked(tmp_path: Path) -> None:
    attempt = write_run(tmp_path, 1)
    assert workers.measure(attempt).charts is None
    assert workers.measure(replace(attempt, current=False), COARSE).charts is None
    assert workers.measure(attempt, COARSE).charts is not None


def test_a_run_that_cannot_be_drawn_keeps_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("an odd run")

    attempt = write_run(tmp_path, 1)
    plain = workers.measure(attempt).measure
    monkeypatch.setattr("seatrial.analyse.charts.run_charts.run_charts", fails)
    found = workers.measure(attempt, COARSE)
    assert plain is not None and found.measure is not None and found.charts is None
    assert replace(found.measure, cautions=plain.cautions) == plain
    (caution,) = found.measure.cautions[len(plain.cautions) :]
    assert (caution.kind, caution.subject) == ("not_drawn", attempt.spec.run) and "an odd run" in caution.text


def start_worker(pipe: Connection, parent: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "seatrial.results.workers", str(pipe.fileno()), str(parent)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=(pipe.fileno(),),
    )


def output_and_code(worker: subprocess.Popen[str]) -> tuple[str, int]:
    output, _ = worker.communicate(timeout=60)
    return output, worker.returncode


def test_a_worker_measures_until_the_pipe_is_closed(tmp_path: Path) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2)]
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        worker = start_worker(theirs, os.getpid())
    with ours:
        ours.send((attempts, None))
        assert repr(ours.recv()) == repr(workers.measure_batch(attempts, None))
    assert output_and_code(worker) == ("", 0)


@pytest.mark.parametrize("sent", [b"", b"\0\0\1"])
def test_a_worker_whose_parent_is_gone_before_it_sent_anything_prints_nothing(sent: bytes) -> None:
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        worker = start_worker(theirs, os.getpid())
    with ours:
        os.write(ours.fileno(), sent)
    assert output_and_code(worker) == ("", 0)


def test_an_orphaned_worker_ends() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours:
        with theirs:
            worker = start_worker(theirs, os.getppid())
        assert output_and_code(worker) == ("", 0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which runs were measured, one after another."""
    names: list[str] = []
    one = workers.measure

    def counted(attempt: Attempt, *rest: Any) -> MeasuredRun:
        names.append(attempt.spec.run)
        return one(attempt, *rest)

    monkeypatch.setattr(workers, "measure", counted)
    return names


def test_only_new_attempts_are_measured_and_the_result_is_the_same(tmp_path: Path, measured: list[str]) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2)]
    cache = MeasureCache()
    first = cache.measure_all(attempts, DETAIL)
    measured.clear()
    attempts.insert(0, write_run(tmp_path, 3))
    again = cache.measure_all(attempts, DETAIL)
    assert measured == [attempts[0].spec.run]
    assert [run.attempt for run in again] == attempts and again[1:] == first
    assert [repr(run) for run in again] == [repr(run) for run in workers.measure_all(attempts, DETAIL)]


def test_a_running_attempt_and_a_changed_one_are_measured_again(tmp_path: Path, measured: list[str]) -> None:
    over, under_way = write_run(tmp_path, 1), write_attempt(tmp_path, factory.spec(repeat=2), outcome=None)
    cache = MeasureCache()
    cache.measure_all([over, under_way], DETAIL)
    cache.measure_all([over, under_way], DETAIL)
    assert measured == [over.spec.run, under_way.spec.run, under_way.spec.run]
    assert over.outcome is not None
    measured.clear()
    failed = replace(over, outcome=replace(over.outcome, outcome=Outcome.FAILED))
    assert cache.measure_all([failed], DETAIL)[0].attempt == failed
    cache.measure_all([replace(failed, current=False)], DETAIL)
    assert measured == [over.spec.run] * 2
    events = AttemptPaths(Path(over.folder)).events(0)
    events.write_text(events.read_text() + "\n")
    cache.measure_all([replace(failed, current=False)], DETAIL)
    assert measured == [over.spec.run] * 3, "a file that grew later, as one recovered from a bad disk does"


@pytest.mark.parametrize(
    ("finer_ratio", "wanted", "is_measured"),
    [
        (1.5, DETAIL, False),
        (1.5, Detail(steps=90, telemetry=80, eta=70), False),
        (1.5, Detail(steps=50, telemetry=100, eta=100), True),
        (1.5, Detail(steps=101, telemetry=100, eta=100), True),
        (1.5, None, True),
        (1.0, DETAIL, False),
        (1.0, Detail(steps=90, telemetry=100, eta=100), True),
    ],
)
def test_charts_a_little_finer_than_asked_serve_where_that_is_allowed(
    tmp_path: Path, measured: list[str], finer_ratio: float, wanted: Detail | None, is_measured: bool
) -> None:
    attempts = [write_run(tmp_path, 1)]
    cache = MeasureCache(finer_ratio)
    cache.measure_all(attempts, DETAIL)
    measured.clear()
    cache.measure_all(attempts, wanted)
    assert bool(measured) is is_measured


def test_what_was_measured_when_a_run_ended_is_used_by_the_report(tmp_path: Path, measured: list[str]) -> None:
    """Where the campaign is complete, so that its charts have the detail they were drawn with."""
    paths = write_campaign(tmp_path / "out", nan_step=None)
    recorder = RunRecorder(paths)
    current = [attempt for attempt in read_campaign(paths) if attempt.current]
    for attempt in current:
        recorder.record(AttemptPaths(Path(attempt.folder)))
    assert sorted(measured) == sorted(attempt.spec.run for attempt in current)
    assert len(paths.manifest.read_text().splitlines()) == 1 + len(current)
    measured.clear()
    results = recompute(paths.folder, cache=recorder.cache)
    assert measured == ["mb8_r1"], "its first attempt, which no longer counts"
    written = {path.name: path.read_bytes() for path in paths.charts.iterdir()}
    again = recompute(paths.folder)
    assert replace(again, generated_t=0.0) == replace(results, generated_t=0.0)
    assert {path.name: path.read_bytes() for path in paths.charts.iterdir()} == written


@pytest.fixture
def running(tmp_path: Path) -> tuple[CampaignPaths, Attempt]:
    """A campaign of which one run has no outcome yet, launched 3.5 s before its first samples."""
    paths = write_campaign(tmp_path / "out", nan_step=None)
    attempt = next(attempt for attempt in read_campaign(paths) if attempt.spec.run == "mb16_r1")
    assert attempt.outcome is not None
    at = AttemptPaths(Path(attempt.folder))
    os.utime(at.provenance, (0, attempt.outcome.started_t + 0.5))
    at.outcome.unlink()
    return paths, replace(attempt, outcome=None)


def test_a_running_attempt_is_drawn_from_its_launch_on(running: tuple[CampaignPaths, Attempt]) -> None:
    tables = draw_running(running[1], COARSE).tables
    assert {"steps", "step_times", "telemetry", "spans"} <= set(tables)
    assert tables["steps"]["t_s"][0] == pytest.approx(4.5)
    assert tables["telemetry"]["t_s"][0] == pytest.approx(1.5)


def test_results_get_charts_of_running_attempts_beside_the_finished_ones(running: tuple[CampaignPaths, Attempt]) -> None:
    results = gather_results(running[0], charts=True)
    assert {run.attempt.spec.run for run in results.runs if run.attempt.current and run.charts is None} == {"mb16_r1"}
    live = add_live_charts(results)
    assert all(run.charts is not None for run in live.runs if run.attempt.current)
    assert [replace(run, charts=None) for run in live.runs] == [replace(run, charts=None) for run in results.runs]


def test_an_attempt_that_has_written_nothing_has_nothing_to_draw(tmp_path: Path) -> None:
    attempt = factory.attempt(outcome=None, folder=str(tmp_path / "mb8_r1" / "attempt-1"))
    assert launched_t(attempt) is None
    assert draw_running(attempt, COARSE).tables == {}


def test_a_report_writes_chart_tables_and_other_readers_do_not_compute_them(tmp_path: Path) -> None:
    paths = write_campaign(tmp_path / "out")
    assert all(run.charts is None for run in gather_results(paths).runs)
    recompute(paths.folder)
    assert {"steps.csv", "step_times.csv", "phases.csv", "ranks.csv", "telemetry.csv", "spans.csv"} <= {
        path.name for path in paths.charts.iterdir()
    }
