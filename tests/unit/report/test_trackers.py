"""MLflow, Weights & Biases and TensorBoard: what arrives there, and that sending twice adds nothing."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.report import trackers
from seatrial.report.trackers import Point, TrackedCampaign, TrackedRun, open_tensorboard

STARTED_T = 1_794_700_000.0


def tracked_run(**changes: Any) -> TrackedRun:
    """One run of 50 steps, with a loss that is not finite at step 5, and two samples of telemetry."""
    made = TrackedRun(
        key="00112233445566aa",
        name="mb8_r1",
        campaign="smoke",
        group="mb8",
        outcome="ok",
        attempt=1,
        started_t=STARTED_T,
        ended_t=STARTED_T + 60,
        params={"micro_batch": 8, "lr": 0.1, "compile": True, "loader": "fork", "odd/name [é]": "x", "none": None},
        tags={"hash": "abc", "attempt": "1", "outcome": "ok"},
        steps=tuple(Point(step=step, t=STARTED_T + step, values=_values(step)) for step in range(50)),
        telemetry=tuple(Point(step=at, t=STARTED_T + at, values={"gpu0/power_w": 300.0 + at}) for at in (2, 4)),
        figures={"samples_per_s": 123.5, "wall_p50_ms": 10.25},
    )
    return dataclasses.replace(made, **changes)


def _values(step: int) -> dict[str, float]:
    return {"wall_iter_ms": 10.0 + step, "loss": math.nan if step == 5 else 1.0}


def campaign(**changes: Any) -> TrackedCampaign:
    made = TrackedCampaign(
        key="ffeeddccbbaa0099",
        name="smoke",
        started_t=STARTED_T,
        tags={"verdict": "PASS", "winner": "mb8"},
        text="# smoke\n\nmb8 wins by 3 % ±1 %.\n",
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name, value in trackers.MLFLOW_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def runs_of(tracker: trackers.Mlflow) -> list[Any]:
    client = tracker.client
    experiment = client.get_experiment_by_name("smoke")
    return list(client.search_runs([experiment.experiment_id]))


@pytest.mark.usefixtures("mlflow")
def test_mlflow_has_a_run_with_everything_in_it(tmp_path: Path) -> None:
    tracker = trackers.open_mlflow(tmp_path)
    tracker.send_run(tracked_run())
    (run,) = runs_of(tracker)
    assert run.info.run_name == "mb8_r1" and run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (int(STARTED_T * 1000), int(STARTED_T * 1000) + 60_000)
    assert run.data.params["micro_batch"] == "8" and run.data.params["loader"] == "fork"
    assert run.data.tags["seatrial.hash"] == "abc" and run.data.tags["seatrial.key"] == tracked_run().key
    assert run.data.metrics["samples_per_s"] == 123.5
    history = tracker.client.get_metric_history(run.info.run_id, "wall_iter_ms")
    assert [(each.step, each.value) for each in history] == [(step, 10.0 + step) for step in range(50)]
    assert math.isnan(tracker.client.get_metric_history(run.info.run_id, "loss")[5].value)
    assert [each.step for each in tracker.client.get_metric_history(run.info.run_id, "gpu0/power_w")] == [2, 4]
    assert (tmp_path / "mlruns").is_dir() and tracker.destination == (tmp_path / "mlruns").as_uri()


@pytest.mark.usefixtures("mlflow")
def test_sending_again_adds_nothing_and_brings_figures_up_to_date(tmp_path: Path) -> None:
    trackers.open_mlflow(tmp_path).send_run(tracked_run())
    tracker = trackers.open_mlflow(tmp_path)
    tracker.send_run(tracked_run(figures={"samples_per_s": 99.0, "wall_p50_ms": 10.25}, tags={"outcome": "ok", "hash": "abc2"}))
    (run,) = runs_of(tracker)
    assert run.data.metrics["samples_per_s"] == 99.0 and run.data.tags["seatrial.hash"] == "abc2"
    assert len(tracker.client.get_metric_history(run.info.run_id, "wall_iter_ms")) == 50
    assert len(tracker.client.get_metric_history(run.info.run_id, "wall_p50_ms")) == 1


@pytest.mark.usefixtures("mlflow")
def test_what_broke_off_is_sent_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = trackers.open_mlflow(tmp_path)

    def broken(*args: object, **more: object) -> None:
        raise ConnectionError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(tracker.client, "set_tag", broken)
        with pytest.raises(ConnectionError):
            tracker.send_run(tracked_run())
    assert len(runs_of(tracker)) == 1
    tracker.send_run(tracked_run())
    (run,) = runs_of(tracker)
    assert run.data.tags["seatrial.sent_whole"] == "true" and run.info.status == "FINISHED"


@pytest.mark.usefixtures("mlflow")
def test_a_failed_run_and_another_attempt_are_runs_of_their_own(tmp_path: Path) -> None:
    tracker = trackers.open_mlflow(tmp_path)
    tracker.send_run(tracked_run(outcome="failed", key="aa", steps=(), telemetry=(), figures={}))
    tracker.send_run(tracked_run(attempt=2, key="bb"))
    assert sorted(run.info.status for run in runs_of(tracker)) == ["FAILED", "FINISHED"]


@pytest.mark.usefixtures("mlflow")
def test_mlflow_has_the_campaign_as_one_run_with_the_report(tmp_path: Path) -> None:
    tracker = trackers.open_mlflow(tmp_path)
    tracker.send_campaign(campaign())
    tracker.send_campaign(campaign(tags={"verdict": "FAIL"}))
    (run,) = runs_of(tracker)
    assert run.info.run_name == "campaign smoke" and run.data.tags["seatrial.verdict"] == "FAIL"
    (artifact,) = (tmp_path / "mlruns").glob(f"*/{run.info.run_id}/artifacts/summary.md")
    assert artifact.read_text() == campaign().text


@pytest.mark.usefixtures("mlflow")
def test_a_server_out_of_reach_is_reported_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(Exception, match="Max retries exceeded"):
        trackers.open_mlflow(tmp_path)
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.usefixtures("mlflow")
@pytest.mark.parametrize(
    ("whole", "there", "scheme"), [(True, None, "sqlite"), (False, None, "file"), (True, "files", "file"), (False, "database", "sqlite")]
)
def test_the_store_in_the_folder_stays_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, there: str | None, scheme: str
) -> None:
    monkeypatch.setattr(trackers, "is_full_mlflow", lambda: whole)
    if there == "files":
        (tmp_path / "0").mkdir()
        (tmp_path / "0" / "meta.yaml").touch()
    if there == "database":
        (tmp_path / "mlflow.db").touch()
    uri, artifacts = trackers.local_mlflow_store(tmp_path)
    assert uri.startswith(f"{scheme}:///") and (artifacts is not None) == (scheme == "sqlite")


BLOCK_BYTES = 32 * 1024
WHOLE, LAST = 1, 4


@pytest.fixture
def wandb_offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for name in ("WANDB_DIR", "WANDB_PROJECT", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**trackers.WANDB_ENVIRONMENT, "WANDB_MODE": "offline"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / "wandb-home"))
    # Not while tests are collected: it takes seconds to load.
    pytest.importorskip("wandb")
    yield
    end_service()


def end_service() -> None:
    """It writes behind the library's back, until it is told to end."""
    import wandb

    wandb.teardown()


def records(folder: Path) -> list[Any]:
    """Every record of one .wandb file: LevelDB's log format, after a header of seven bytes, around wandb's own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    end_service()
    (path,) = folder.glob("*.wandb")
    data, at, parts, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < 7:
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (WHOLE, LAST):
            found.append(Record.FromString(parts))
            parts = b""
    return found


def history(found: list[Any]) -> list[dict[str, Any]]:
    rows = [record.history for record in found if record.WhichOneof("record_type") == "history"]
    return [{item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]


@pytest.mark.usefixtures("wandb_offline")
def test_wandb_has_a_run_with_everything_in_it(tmp_path: Path) -> None:
    tracker = trackers.open_wandb(tmp_path)
    tracker.send_run(tracked_run())
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    found = records(folder)
    (run,) = [record.run for record in found if record.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.display_name, run.run_group, run.job_type, run.project) == (
        tracked_run().key,
        "mb8_r1",
        "smoke",
        "mb8",
        "seatrial",
    )
    assert {item.key: json.loads(item.value_json) for item in run.config.update}["micro_batch"] == 8
    rows = history(found)
    assert [row["wall_iter_ms"] for row in rows if "wall_iter_ms" in row] == [10.0 + step for step in range(50)]
    assert [row["telemetry/gpu0/power_w"] for row in rows if "telemetry/gpu0/power_w" in row] == [302.0, 304.0]
    assert "offline" in tracker.destination


@pytest.mark.usefixtures("wandb_offline")
def test_sending_again_leaves_one_run(tmp_path: Path) -> None:
    trackers.open_wandb(tmp_path).send_run(tracked_run())
    end_service()
    trackers.open_wandb(tmp_path).send_run(tracked_run(steps=tracked_run().steps[:3]))
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert len([row for row in history(records(folder)) if "wall_iter_ms" in row]) == 3


@pytest.mark.usefixtures("wandb_offline")
def test_wandb_has_the_campaign_as_one_run_with_the_report(tmp_path: Path) -> None:
    trackers.open_wandb(tmp_path).send_campaign(campaign(name="smoke+more"))
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    found = records(folder)
    (artifact,) = [record.artifact for record in found if record.WhichOneof("record_type") == "artifact"]
    assert artifact.name == "smoke_more-report" and [entry.path for entry in artifact.manifest.contents] == ["summary.md"]


@pytest.mark.usefixtures("wandb_offline")
def test_without_a_key_the_user_is_reported_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="wandb login"):
        trackers.open_wandb(tmp_path)


@pytest.fixture
def tensorboard() -> None:
    pytest.importorskip("tensorboard")


def read_events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder))
    reader.Reload()
    return reader


def hparams(reader: Any, tag: str) -> Any:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    return HParamsPluginData.FromString(reader.SummaryMetadata(tag).plugin_data.content)


def ended_with(reader: Any) -> str:
    from tensorboard.plugins.hparams.api_pb2 import Status

    return str(Status.Name(hparams(reader, "_hparams_/session_end_info").session_end_info.status))


@pytest.mark.usefixtures("tensorboard")
def test_scalars_settings_and_figures(tmp_path: Path) -> None:
    open_tensorboard(tmp_path).send_run(tracked_run())
    reader = read_events(tmp_path / "tensorboard" / "mb8_r1" / "attempt-1")
    iters = reader.Scalars("wall_iter_ms")
    assert [(each.step, each.value) for each in iters] == [(step, 10.0 + step) for step in range(50)]
    assert iters[0].wall_time == STARTED_T
    assert math.isnan(reader.Scalars("loss")[5].value)
    assert [each.step for each in reader.Scalars("gpu0/power_w")] == [2, 4]
    assert reader.Scalars("summary/samples_per_s")[0].value == 123.5
    settings = hparams(reader, "_hparams_/session_start_info").session_start_info.hparams
    assert settings["micro_batch"].number_value == 8 and settings["compile"].bool_value and settings["loader"].string_value == "fork"
    assert ended_with(reader) == "STATUS_SUCCESS"


@pytest.mark.usefixtures("tensorboard")
def test_sending_again_replaces(tmp_path: Path) -> None:
    tracker = open_tensorboard(tmp_path)
    tracker.send_run(tracked_run())
    tracker.send_run(tracked_run(outcome="failed", steps=tracked_run().steps[:3]))
    folder = tmp_path / "tensorboard" / "mb8_r1"
    assert [path.name for path in folder.iterdir()] == ["attempt-1"]
    reader = read_events(folder / "attempt-1")
    assert len(reader.Scalars("loss")) == 3
    assert ended_with(reader) == "STATUS_FAILURE"


@pytest.mark.usefixtures("tensorboard")
def test_a_write_that_fails_is_reported_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    tracker = open_tensorboard(tmp_path)
    tracker.send_run(tracked_run())

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(OSError, match="No space"):
        tracker.send_run(tracked_run())
    folder = tmp_path / "tensorboard" / "mb8_r1"
    assert [path.name for path in folder.iterdir()] == ["attempt-1"]
    assert len(read_events(folder / "attempt-1").Scalars("loss")) == 50


@pytest.mark.usefixtures("tensorboard")
def test_the_report_is_text(tmp_path: Path) -> None:
    tracker = open_tensorboard(tmp_path)
    tracker.send_campaign(campaign())
    reader = read_events(tmp_path / "tensorboard" / "campaign")
    assert reader.Tensors("summary")[0].tensor_proto.string_val == [campaign().text.encode()]
    assert b"verdict: PASS" in reader.Tensors("verdict")[0].tensor_proto.string_val[0]
    assert tracker.destination == str(tmp_path / "tensorboard")
