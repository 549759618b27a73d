"""Runs as TensorBoard's event files: OUT/tensorboard/<run>/attempt-<k>, one folder an attempt, written anew each time it is sent.

Scalars by step, summary figures, settings for the HParams page, and the report as text under `campaign`.
Look at them with `tensorboard --logdir OUT/tensorboard`.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seatrial.paths import CampaignPaths
from seatrial.report.trackers.tracker import Point, TrackedCampaign, TrackedRun

CAMPAIGN = "campaign"
# What TensorBoard expects a file to begin with.
FILE_VERSION = "brain.Event:2"


class TensorBoard:
    """Event files under one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def where(self) -> str:
        return str(self._folder)

    def send_run(self, run: TrackedRun) -> None:
        _write(self._folder / _folder_name(run.name) / f"attempt-{run.attempt}", _run_events(run))

    def send_campaign(self, campaign: TrackedCampaign) -> None:
        lines = "\n".join(f"- {name}: {value}" for name, value in campaign.tags.items())
        _write(self._folder / CAMPAIGN, [_text("verdict", lines, campaign.started_t), _text("summary", campaign.text, campaign.started_t)])


def open_tracker(campaign_folder: Path) -> TensorBoard:
    # Imported here so that a broken installation is told when the tracker is opened.
    import tensorboard.summary.writer.record_writer  # noqa: F401

    return TensorBoard(CampaignPaths(campaign_folder).tensorboard)


def _folder_name(run: str) -> str:
    """The name is what a spec.json says: from a folder that somebody sent, it may be a way out of it."""
    return run.replace("/", "-").lstrip(".") or "run"


def _write(folder: Path, events: Iterable[Any]) -> None:
    """The folder anew: TensorBoard adds up every file it finds in one, so an older file would double each point."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        # Record by record in this thread: TensorBoard's own writer has one of its own, in which a full disk goes unheard.
        with open(aside / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}", "wb") as target:
            writer = RecordWriter(target)
            for event in (Event(wall_time=time.time(), file_version=FILE_VERSION), *events):
                writer.write(event.SerializeToString())
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _run_events(run: TrackedRun) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    settings = {name: "none" if value is None else value for name, value in run.params.items()}
    yield Event(wall_time=run.started_t, summary=hparams_pb(settings, trial_id=run.key, start_time_secs=run.started_t))
    for point in (*run.steps, *run.telemetry):
        yield _scalars(point)
    if run.figures:
        yield _scalars(Point(step=0, t=run.ended_t, values={f"summary/{name}": value for name, value in run.figures.items()}))
    yield _text("tags", "\n".join(f"- {name}: {value}" for name, value in run.tags.items()), run.ended_t)
    yield _session_end(run)


def _scalars(point: Point) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
    return Event(wall_time=point.t, step=point.step, summary=Summary(value=values))


def _text(tag: str, text: str, t: float) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    metadata = create_summary_metadata(display_name="", description="")
    value = Summary.Value(tag=tag, metadata=metadata, tensor=make_tensor_proto(text.encode("utf-8", "replace")))
    return Event(wall_time=t, summary=Summary(value=[value]))


def _session_end(run: TrackedRun) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    status = Status.Value("STATUS_SUCCESS" if run.outcome == "ok" else "STATUS_FAILURE")
    ended = SessionEndInfo(status=status, end_time_secs=run.ended_t)
    content = HParamsPluginData(session_end_info=ended, version=metadata.PLUGIN_DATA_VERSION).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content)
    value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=SummaryMetadata(plugin_data=plugin), tensor=metadata.NULL_TENSOR)
    return Event(wall_time=run.ended_t, summary=Summary(value=[value]))
