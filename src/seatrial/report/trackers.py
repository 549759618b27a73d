"""Sending finished runs to MLflow, Weights & Biases or TensorBoard.

In: a tracker's name, then `TrackedRun`s and at the end the `TrackedCampaign`. A tracker runs in a process of its own and imports its
package only when it is opened; its exceptions are reported to the user.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from seatrial.core.errors import UsageError, did_you_mean
from seatrial.core.files import refuse_links, refuse_links_out
from seatrial.core.paths import CampaignPaths
from seatrial.records.caution import Scalar

TAG_PREFIX = "seatrial."


@dataclass(frozen=True, kw_only=True)
class Point:
    """Values at one time."""

    step: int
    """The training step; for telemetry whole seconds since the launch."""
    t: float
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A finished attempt."""

    key: str
    """Identifies the attempt, whenever and wherever it is sent from."""
    name: str
    campaign: str
    """The plan's name."""
    group: str
    outcome: str
    attempt: int
    started_t: float
    ended_t: float
    params: dict[str, Scalar]
    tags: dict[str, str]
    steps: tuple[Point, ...]
    """Steps of rank 0, thinned; extremes are kept."""
    telemetry: tuple[Point, ...]
    figures: dict[str, float]
    """Throughput, percentiles, start-up, and telemetry over the window."""


@dataclass(frozen=True, kw_only=True)
class TrackedCampaign:
    """The campaign so far."""

    key: str
    name: str
    started_t: float
    tags: dict[str, str]
    """Verdict, winner, and how it was decided."""
    text: str
    """summary.md."""


class Tracker(Protocol):
    """A service that runs are sent to. Sending one again adds nothing."""

    @property
    def destination(self) -> str:
        """The destination of the data, as text."""

    def send_run(self, run: TrackedRun) -> None: ...

    def send_campaign(self, campaign: TrackedCampaign) -> None: ...


TRACKERS = ("mlflow", "wandb", "tensorboard")
"""Each is also the name of its package."""


def chosen_trackers(names: Sequence[str]) -> list[str]:
    """The names, each once; a UsageError, before anything has started, for one that cannot be used here."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"--track {name}: there is no such tracker; {did_you_mean(name, TRACKERS)}")
        if not _is_installed(name):
            raise UsageError(f"--track {name}: the package is not installed; run `pip install {name}`, or leave --track out")
    return list(dict.fromkeys(names))


def open_tracker(name: str, campaign_folder: Path) -> Tracker:
    """The tracker with its package imported; data that stays on this machine goes into the campaign's folder."""
    openers: dict[str, Callable[[Path], Tracker]] = {"mlflow": open_mlflow, "wandb": open_wandb, "tensorboard": open_tensorboard}
    return openers[name](campaign_folder)


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # A folder of that name in the working folder (wandb leaves one) is found as a package, too, but has no file.
    return spec is not None and spec.origin is not None


KEY_TAG, COMPLETE_TAG = f"{TAG_PREFIX}key", f"{TAG_PREFIX}sent_whole"
# MLflow's own limits on one request.
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100
MLFLOW_LONGEST_PARAM, MLFLOW_LONGEST_TAG = 6000, 5000
MLFLOW_DATABASE = "mlflow.db"
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
# Set unless the user has set them: an unreachable server is found in seconds, and MLflow sends no telemetry.
MLFLOW_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
Item = TypeVar("Item")


class Mlflow:
    """One tracking store."""

    def __init__(self, client: Any, destination: str, artifacts: Path | None) -> None:
        self.client, self._destination, self._artifacts = client, destination, artifacts
        self._experiments: dict[str, str] = {}

    @property
    def destination(self) -> str:
        return self._destination

    def send_run(self, run: TrackedRun) -> None:
        experiment = self._experiment(run.campaign)
        found = self._found(experiment, run.key)
        if found is not None and found.data.tags.get(COMPLETE_TAG) == "true":
            self._update(found, run)
            return
        if found is not None:
            self.client.delete_run(found.info.run_id)
        self._send_whole(experiment, run)

    def send_campaign(self, campaign: TrackedCampaign) -> None:
        experiment = self._experiment(campaign.name)
        found = self._found(experiment, campaign.key)
        tags = {KEY_TAG: campaign.key, **_mlflow_tags(campaign.tags)}
        if found is None:
            start_ms = int(campaign.started_t * 1000)
            found = self.client.create_run(experiment, run_name=f"campaign {campaign.name}", start_time=start_ms, tags=tags)
            self.client.set_terminated(found.info.run_id, "FINISHED")
        for name, value in tags.items():
            self.client.set_tag(found.info.run_id, name, value)
        self.client.log_text(found.info.run_id, campaign.text, "summary.md")

    def _send_whole(self, experiment: str, run: TrackedRun) -> None:
        from mlflow.entities import Metric, Param

        tags = {KEY_TAG: run.key, **_mlflow_tags(run.tags)}
        created = self.client.create_run(experiment, run_name=run.name, start_time=int(run.started_t * 1000), tags=tags)
        run_id = created.info.run_id
        for params in _chunks(
            [Param(_mlflow_name(key), str(value)[:MLFLOW_LONGEST_PARAM]) for key, value in run.params.items()], PARAMS_AT_ONCE
        ):
            self.client.log_batch(run_id, params=params)
        ended_ms = int(run.ended_t * 1000)
        points = [
            (key, value, int(point.t * 1000), point.step) for point in (*run.steps, *run.telemetry) for key, value in point.values.items()
        ]
        figures = [(key, value, ended_ms, 0) for key, value in run.figures.items()]
        for metrics in _chunks([Metric(_mlflow_name(key), *rest) for key, *rest in (*points, *figures)], METRICS_AT_ONCE):
            self.client.log_batch(run_id, metrics=metrics)
        self.client.set_tag(run_id, COMPLETE_TAG, "true")
        self.client.set_terminated(run_id, "FINISHED" if run.outcome == "ok" else "FAILED", end_time=ended_ms)

    def _update(self, found: Any, run: TrackedRun) -> None:
        """Send changed figures and tags: the plan's window may change without a new run."""
        for key, value in run.figures.items():
            if found.data.metrics.get(_mlflow_name(key)) != value:
                self.client.log_metric(found.info.run_id, _mlflow_name(key), value)
        for key, text in _mlflow_tags(run.tags).items():
            if found.data.tags.get(key) != text:
                self.client.set_tag(found.info.run_id, key, text)

    def _found(self, experiment: str, key: str) -> Any | None:
        runs = self.client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
        return runs[0] if runs else None

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            known = self.client.get_experiment_by_name(name)
            location = {"artifact_location": (self._artifacts / name).as_uri()} if self._artifacts else {}
            self._experiments[name] = known.experiment_id if known else self.client.create_experiment(name, **location)
        return self._experiments[name]


def open_mlflow(campaign_folder: Path) -> Mlflow:
    """The user's store, or one in the campaign's folder; queried once, so that an unreachable one fails now."""
    for name, value in MLFLOW_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI", ""), None
    if not uri:
        uri, artifacts = local_mlflow_store(CampaignPaths(campaign_folder).mlruns.absolute())
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    client.search_experiments(max_results=1)
    return Mlflow(client, uri, artifacts)


def local_mlflow_store(folder: Path) -> tuple[str, Path | None]:
    """A database where all of MLflow is installed, as newer versions require; plain files for the small client, which has none."""
    refuse_links_out(folder)
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / MLFLOW_DATABASE
    if database.exists() or (is_full_mlflow() and not any(folder.glob("*/meta.yaml"))):
        return f"sqlite:///{database}", folder / "artifacts"
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    return folder.as_uri(), None


def is_full_mlflow() -> bool:
    try:
        return bool(importlib.metadata.version("mlflow"))
    except importlib.metadata.PackageNotFoundError:
        return False


def _mlflow_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"{TAG_PREFIX}{_mlflow_name(key)}": value[:MLFLOW_LONGEST_TAG] for key, value in tags.items()}


def _mlflow_name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


WANDB_PROJECT = "seatrial"
WANDB_COMPLETE = "seatrial/sent_whole"
WANDB_LONGEST_TAG = 64
INIT_TIMEOUT_S = 20.0
# Seatrial records telemetry itself; wandb must not sample the machine, nor save the code or the output of the harness.
_WANDB_SETTINGS = {
    "silent": True,
    "console": "off",
    "save_code": False,
    "disable_git": True,
    "disable_job_creation": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_save_requirements": False,
    "init_timeout": INIT_TIMEOUT_S,
}
WANDB_ENVIRONMENT = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_START_METHOD": "thread"}


class Wandb:
    """The user's project."""

    def __init__(self, wandb: Any, folder: Path) -> None:
        self._wandb, self._folder = wandb, folder

    @property
    def destination(self) -> str:
        mode = os.environ.get("WANDB_MODE", "online")
        return f"{self._folder} ({mode}; `wandb sync` sends it)" if mode == "offline" else f"project {_wandb_project()}"

    def send_run(self, run: TrackedRun) -> None:
        tags = [tag[:WANDB_LONGEST_TAG] for tag in (run.group, run.outcome) if tag]
        config = {**run.params, "seatrial": {**run.tags, "key": run.key}}
        with self._run(run.key, run.name, run.campaign, job_type=run.group, config=config, tags=tags) as wandb_run:
            if not wandb_run.summary.get(WANDB_COMPLETE):
                self._send_points(wandb_run, run)
            wandb_run.summary.update({**run.figures, "outcome": run.outcome, WANDB_COMPLETE: True})

    def send_campaign(self, campaign: TrackedCampaign) -> None:
        name = f"campaign {campaign.name}"
        with self._run(campaign.key, name, campaign.name, job_type="campaign", config={"seatrial": campaign.tags}) as wandb_run:
            wandb_run.summary.update(campaign.tags)
            report = self._wandb.Artifact(re.sub(r"[^\w.-]", "_", f"{campaign.name}-report"), type="report")
            with report.new_file("summary.md", mode="w", encoding="utf-8") as target:
                target.write(campaign.text)
            wandb_run.log_artifact(report)

    def _send_points(self, wandb_run: Any, run: TrackedRun) -> None:
        wandb_run.define_metric("telemetry/*", step_metric="telemetry/elapsed_s")
        # Steps of an interrupted transfer count as sent: a step cannot be written twice.
        sent = wandb_run.step
        for step, values in _wandb_rows(run):
            if step >= sent:
                wandb_run.log(values, step=step)

    def _run(self, key: str, name: str, campaign: str, **more: Any) -> Any:
        self._remove_unsent(key)
        return self._wandb.init(
            id=key,
            name=name,
            project=_wandb_project(),
            group=campaign,
            dir=str(self._folder.parent),
            resume="allow",
            reinit="create_new",
            settings=self._wandb.Settings(**_known_settings(self._wandb, _WANDB_SETTINGS)),
            **more,
        )

    def _remove_unsent(self, key: str) -> None:
        """Remove earlier copies of an offline run, which cannot be resumed."""
        for old in self._folder.glob(f"offline-run-*-{key}"):
            shutil.rmtree(old, ignore_errors=True)


def open_wandb(campaign_folder: Path) -> Wandb:
    for name, value in WANDB_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import wandb

    if os.environ.get("WANDB_DIR"):
        folder = Path(os.environ["WANDB_DIR"]) / "wandb"
    else:
        folder = CampaignPaths(campaign_folder).wandb
        # wandb only writes to new folders; those of earlier runs contain its own links to its logs.
        refuse_links([folder])
    folder.parent.mkdir(parents=True, exist_ok=True)
    if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.api.api_key:
        raise RuntimeError("wandb has no API key here: run `wandb login`, or set WANDB_MODE=offline to keep the runs on this machine")
    return Wandb(wandb, folder.absolute())


def _wandb_project() -> str:
    return os.environ.get("WANDB_PROJECT") or WANDB_PROJECT


def _known_settings(wandb: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the installed version: some are undocumented and change."""
    fields = getattr(wandb.Settings, "model_fields", {})
    return {name: value for name, value in settings.items() if name in fields}


def _wandb_rows(run: TrackedRun) -> Iterator[tuple[int, dict[str, float]]]:
    """Rows on wandb's single axis: telemetry after the steps, drawn over its own clock."""
    yield from ((point.step, point.values) for point in run.steps)
    after = run.steps[-1].step + 1 if run.steps else 0
    for at, point in enumerate(run.telemetry):
        values = {f"telemetry/{name}": value for name, value in point.values.items()}
        yield after + at, {**values, "telemetry/elapsed_s": float(point.step)}


CAMPAIGN_FOLDER = "campaign"
# What TensorBoard expects a file to begin with.
FILE_VERSION = "brain.Event:2"


class TensorBoard:
    """Event files under one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def destination(self) -> str:
        return str(self._folder)

    def send_run(self, run: TrackedRun) -> None:
        _write_events(self._folder / _folder_name(run.name) / f"attempt-{run.attempt}", _run_events(run))

    def send_campaign(self, campaign: TrackedCampaign) -> None:
        lines = "\n".join(f"- {name}: {value}" for name, value in campaign.tags.items())
        _write_events(
            self._folder / CAMPAIGN_FOLDER,
            [_text_event("verdict", lines, campaign.started_t), _text_event("summary", campaign.text, campaign.started_t)],
        )


def open_tensorboard(campaign_folder: Path) -> TensorBoard:
    # Imported here so that a broken installation fails when the tracker is opened.
    import tensorboard.summary.writer.record_writer  # noqa: F401

    folder = CampaignPaths(campaign_folder).tensorboard
    refuse_links_out(folder)
    return TensorBoard(folder)


def _folder_name(run: str) -> str:
    """The run's name as a folder: it comes from a spec.json, perhaps of a foreign folder, and must not lead out of the tracker's."""
    return run.replace("/", "-").lstrip(".") or "run"


def _write_events(folder: Path, events: Iterable[Any]) -> None:
    """Replace the folder: TensorBoard reads all files in it, so an older one would double each point."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        # Record by record in this thread: TensorBoard's own writer has a thread, in which a full disk goes unnoticed.
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
        yield _scalars_event(point)
    if run.figures:
        yield _scalars_event(Point(step=0, t=run.ended_t, values={f"summary/{name}": value for name, value in run.figures.items()}))
    yield _text_event("tags", "\n".join(f"- {name}: {value}" for name, value in run.tags.items()), run.ended_t)
    yield _session_end_event(run)


def _scalars_event(point: Point) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
    return Event(wall_time=point.t, step=point.step, summary=Summary(value=values))


def _text_event(tag: str, text: str, t: float) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    metadata = create_summary_metadata(display_name="", description="")
    value = Summary.Value(tag=tag, metadata=metadata, tensor=make_tensor_proto(text.encode("utf-8", "replace")))
    return Event(wall_time=t, summary=Summary(value=[value]))


def _session_end_event(run: TrackedRun) -> Any:
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
