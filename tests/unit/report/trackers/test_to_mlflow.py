"""Runs in MLflow's own file store, read back by its client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.report.trackers import to_mlflow
from tests.unit.report.trackers import sent

pytest.importorskip("mlflow")


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name, value in to_mlflow._ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    yield


def runs_of(tracker: to_mlflow.Mlflow) -> list[Any]:
    client = tracker._client
    experiment = client.get_experiment_by_name("smoke")
    return list(client.search_runs([experiment.experiment_id]))


def test_a_run_with_everything_in_it(tmp_path: Path) -> None:
    tracker = to_mlflow.open_tracker(tmp_path)
    tracker.send_run(sent.run())
    (run,) = runs_of(tracker)
    assert run.info.run_name == "mb8_r1" and run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (int(sent.STARTED_T * 1000), int(sent.STARTED_T * 1000) + 60_000)
    assert run.data.params["micro_batch"] == "8" and run.data.params["loader"] == "fork"
    assert run.data.tags["seatrial.hash"] == "abc" and run.data.tags["seatrial.key"] == sent.run().key
    assert run.data.metrics["samples_per_s"] == 123.5
    history = tracker._client.get_metric_history(run.info.run_id, "wall_iter_ms")
    assert [(each.step, each.value) for each in history] == [(step, 10.0 + step) for step in range(50)]
    assert math.isnan(tracker._client.get_metric_history(run.info.run_id, "loss")[5].value)
    assert [each.step for each in tracker._client.get_metric_history(run.info.run_id, "gpu0/power_w")] == [2, 4]
    assert (tmp_path / "mlruns").is_dir() and tracker.where == (tmp_path / "mlruns").as_uri()


def test_sending_again_adds_nothing_and_brings_figures_up_to_date(tmp_path: Path) -> None:
    to_mlflow.open_tracker(tmp_path).send_run(sent.run())
    tracker = to_mlflow.open_tracker(tmp_path)
    tracker.send_run(sent.run(figures={"samples_per_s": 99.0, "wall_p50_ms": 10.25}, tags={"outcome": "ok", "hash": "abc2"}))
    (run,) = runs_of(tracker)
    assert run.data.metrics["samples_per_s"] == 99.0 and run.data.tags["seatrial.hash"] == "abc2"
    assert len(tracker._client.get_metric_history(run.info.run_id, "wall_iter_ms")) == 50
    assert len(tracker._client.get_metric_history(run.info.run_id, "wall_p50_ms")) == 1


def test_what_broke_off_is_sent_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = to_mlflow.open_tracker(tmp_path)

    def broken(*args: object, **more: object) -> None:
        raise ConnectionError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(tracker._client, "set_tag", broken)
        with pytest.raises(ConnectionError):
            tracker.send_run(sent.run())
    assert len(runs_of(tracker)) == 1
    tracker.send_run(sent.run())
    (run,) = runs_of(tracker)
    assert run.data.tags["seatrial.sent_whole"] == "true" and run.info.status == "FINISHED"


def test_a_failed_run_and_another_attempt_are_runs_of_their_own(tmp_path: Path) -> None:
    tracker = to_mlflow.open_tracker(tmp_path)
    tracker.send_run(sent.run(outcome="failed", key="aa", steps=(), telemetry=(), figures={}))
    tracker.send_run(sent.run(attempt=2, key="bb"))
    assert sorted(run.info.status for run in runs_of(tracker)) == ["FAILED", "FINISHED"]


def test_the_campaign_is_one_run_with_the_report(tmp_path: Path) -> None:
    tracker = to_mlflow.open_tracker(tmp_path)
    tracker.send_campaign(sent.campaign())
    tracker.send_campaign(sent.campaign(tags={"verdict": "FAIL"}))
    (run,) = runs_of(tracker)
    assert run.info.run_name == "campaign smoke" and run.data.tags["seatrial.verdict"] == "FAIL"
    (artifact,) = (tmp_path / "mlruns").glob(f"*/{run.info.run_id}/artifacts/summary.md")
    assert artifact.read_text() == sent.campaign().text


def test_a_server_out_of_reach_is_told_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(Exception, match="Max retries exceeded"):
        to_mlflow.open_tracker(tmp_path)
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.parametrize(
    ("whole", "there", "scheme"), [(True, None, "sqlite"), (False, None, "file"), (True, "files", "file"), (False, "database", "sqlite")]
)
def test_the_store_in_the_folder_stays_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, there: str | None, scheme: str
) -> None:
    monkeypatch.setattr(to_mlflow, "_has_databases", lambda: whole)
    if there == "files":
        (tmp_path / "0").mkdir()
        (tmp_path / "0" / "meta.yaml").touch()
    if there == "database":
        (tmp_path / "mlflow.db").touch()
    uri, artifacts = to_mlflow._own_store(tmp_path)
    assert uri.startswith(f"{scheme}:///") and (artifacts is not None) == (scheme == "sqlite")
