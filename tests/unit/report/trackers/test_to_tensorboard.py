"""Runs as event files, read back by TensorBoard's own reader."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from seatrial.report.trackers.to_tensorboard import open_tracker
from tests.unit.report.trackers import sent

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.hparams.metadata import SESSION_END_INFO_TAG, SESSION_START_INFO_TAG
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData


def read(folder: Path) -> EventAccumulator:
    reader = EventAccumulator(str(folder))
    reader.Reload()
    return reader


def hparams(reader: EventAccumulator, tag: str) -> HParamsPluginData:
    return HParamsPluginData.FromString(reader.SummaryMetadata(tag).plugin_data.content)


def test_scalars_settings_and_figures(tmp_path: Path) -> None:
    open_tracker(tmp_path).send_run(sent.run())
    reader = read(tmp_path / "tensorboard" / "mb8_r1" / "attempt-1")
    iters = reader.Scalars("wall_iter_ms")
    assert [(each.step, each.value) for each in iters] == [(step, 10.0 + step) for step in range(50)]
    assert iters[0].wall_time == sent.STARTED_T
    assert math.isnan(reader.Scalars("loss")[5].value)
    assert [each.step for each in reader.Scalars("gpu0/power_w")] == [2, 4]
    assert reader.Scalars("summary/samples_per_s")[0].value == 123.5
    settings = hparams(reader, SESSION_START_INFO_TAG).session_start_info.hparams
    assert settings["micro_batch"].number_value == 8 and settings["compile"].bool_value and settings["loader"].string_value == "fork"
    assert hparams(reader, SESSION_END_INFO_TAG).session_end_info.status == Status.Value("STATUS_SUCCESS")


def test_sending_again_replaces(tmp_path: Path) -> None:
    tracker = open_tracker(tmp_path)
    tracker.send_run(sent.run())
    tracker.send_run(sent.run(outcome="failed", steps=sent.run().steps[:3]))
    folder = tmp_path / "tensorboard" / "mb8_r1"
    assert [path.name for path in folder.iterdir()] == ["attempt-1"]
    reader = read(folder / "attempt-1")
    assert len(reader.Scalars("loss")) == 3
    assert hparams(reader, SESSION_END_INFO_TAG).session_end_info.status == Status.Value("STATUS_FAILURE")


def test_a_write_that_fails_is_told_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    tracker = open_tracker(tmp_path)
    tracker.send_run(sent.run())

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(OSError, match="No space"):
        tracker.send_run(sent.run())
    folder = tmp_path / "tensorboard" / "mb8_r1"
    assert [path.name for path in folder.iterdir()] == ["attempt-1"]
    assert len(read(folder / "attempt-1").Scalars("loss")) == 50


def test_the_report_is_text(tmp_path: Path) -> None:
    tracker = open_tracker(tmp_path)
    tracker.send_campaign(sent.campaign())
    reader = read(tmp_path / "tensorboard" / "campaign")
    assert reader.Tensors("summary")[0].tensor_proto.string_val == [sent.campaign().text.encode()]
    assert b"verdict: PASS" in reader.Tensors("verdict")[0].tensor_proto.string_val[0]
    assert tracker.where == str(tmp_path / "tensorboard")
