"""When a run ran: by its outcome, else by its logs, else by its samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.original.spans import Span
from seatrial.files import write_json
from seatrial.paths import AttemptPaths
from seatrial_runbooks.stage1.leak_inputs import LeakRun, RunFinder
from seatrial_runbooks.stage1.run_span import run_span
from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign


@pytest.fixture
def run(tmp_path: Path) -> LeakRun:
    root = write_original_campaign(tmp_path / "bench", sweep_run(attempts=(OriginalAttempt(max_steps=100, log_every=50),)))
    (one,) = RunFinder().runs(root)
    return one


def span_of(run: LeakRun) -> Span | None:
    assert run.campaign is not None
    return run_span(run, run.campaign)


def test_an_outcome_stands_over_everything(run: LeakRun) -> None:
    paths = AttemptPaths(run.folder)
    write_json(paths.outcome, {"started_t": 100.0, "ended_t": 160.0})
    assert span_of(run) == Span(first_t=100.0, last_t=160.0, duration_s=60.0, source="outcome.json")


@pytest.mark.parametrize("outcome", [[], {}, {"started_t": 5.0}, {"started_t": 9.0, "ended_t": 8.0}, {"started_t": "1", "ended_t": 2.0}])
def test_an_outcome_that_tells_no_time_leaves_it_to_the_logs(run: LeakRun, outcome: object) -> None:
    by_logs = span_of(run)
    assert by_logs is not None and by_logs.source == "launcher.log"
    write_json(AttemptPaths(run.folder).outcome, outcome)
    assert span_of(run) == by_logs


def test_without_logs_the_samples_tell(run: LeakRun) -> None:
    paths = AttemptPaths(run.folder)
    paths.launcher_log.unlink()
    paths.train_log.unlink()
    found = span_of(run)
    assert found is not None and found.source == "gpu_telemetry.csv" and found.duration_s > 0


def test_where_no_file_tells_there_is_none(run: LeakRun) -> None:
    paths = AttemptPaths(run.folder)
    for path in (paths.launcher_log, paths.train_log, paths.gpu_telemetry, paths.host_telemetry):
        path.unlink(missing_ok=True)
    assert span_of(run) is None
