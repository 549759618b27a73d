"""Runs in MLflow: where MLFLOW_TRACKING_URI says, else OUT/mlruns. An experiment is a plan, a run is an attempt.

A run that was sent whole before is found by its key and only brought up to date; one that broke off half-way is removed and sent anew.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from seatrial.paths import CampaignPaths
from seatrial.report.trackers.tracker import TAG_PREFIX, TrackedCampaign, TrackedRun

KEY_TAG, WHOLE_TAG = f"{TAG_PREFIX}key", f"{TAG_PREFIX}sent_whole"
# MLflow's own limits on one request.
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100
LONGEST_PARAM, LONGEST_TAG = 6000, 5000
DATABASE = "mlflow.db"
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
# Given unless the user says otherwise: a server that is down is found out in seconds, and nothing is told to third parties.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
Item = TypeVar("Item")


class Mlflow:
    """One tracking store."""

    def __init__(self, client: Any, where: str, artifacts: Path | None) -> None:
        self._client, self._where, self._artifacts = client, where, artifacts
        self._experiments: dict[str, str] = {}

    @property
    def where(self) -> str:
        return self._where

    def send_run(self, run: TrackedRun) -> None:
        experiment = self._experiment(run.campaign)
        found = self._found(experiment, run.key)
        if found is not None and found.data.tags.get(WHOLE_TAG) == "true":
            self._bring_up_to_date(found, run)
            return
        if found is not None:
            self._client.delete_run(found.info.run_id)
        self._send_whole(experiment, run)

    def send_campaign(self, campaign: TrackedCampaign) -> None:
        experiment = self._experiment(campaign.name)
        found = self._found(experiment, campaign.key)
        tags = {KEY_TAG: campaign.key, **_tags(campaign.tags)}
        if found is None:
            start_ms = int(campaign.started_t * 1000)
            found = self._client.create_run(experiment, run_name=f"campaign {campaign.name}", start_time=start_ms, tags=tags)
            self._client.set_terminated(found.info.run_id, "FINISHED")
        for name, value in tags.items():
            self._client.set_tag(found.info.run_id, name, value)
        self._client.log_text(found.info.run_id, campaign.text, "summary.md")

    def _send_whole(self, experiment: str, run: TrackedRun) -> None:
        from mlflow.entities import Metric, Param

        tags = {KEY_TAG: run.key, **_tags(run.tags)}
        made = self._client.create_run(experiment, run_name=run.name, start_time=int(run.started_t * 1000), tags=tags)
        run_id = made.info.run_id
        for params in _chunks([Param(_name(key), str(value)[:LONGEST_PARAM]) for key, value in run.params.items()], PARAMS_AT_ONCE):
            self._client.log_batch(run_id, params=params)
        ended_ms = int(run.ended_t * 1000)
        points = [(key, value, int(point.t * 1000), point.step) for point in _points(run) for key, value in point.values.items()]
        figures = [(key, value, ended_ms, 0) for key, value in run.figures.items()]
        for metrics in _chunks([Metric(_name(key), *rest) for key, *rest in (*points, *figures)], METRICS_AT_ONCE):
            self._client.log_batch(run_id, metrics=metrics)
        self._client.set_tag(run_id, WHOLE_TAG, "true")
        self._client.set_terminated(run_id, "FINISHED" if run.outcome == "ok" else "FAILED", end_time=ended_ms)

    def _bring_up_to_date(self, found: Any, run: TrackedRun) -> None:
        """Figures may change without a run being made again: the plan's window can."""
        for key, value in run.figures.items():
            if found.data.metrics.get(_name(key)) != value:
                self._client.log_metric(found.info.run_id, _name(key), value)
        for key, text in _tags(run.tags).items():
            if found.data.tags.get(key) != text:
                self._client.set_tag(found.info.run_id, key, text)

    def _found(self, experiment: str, key: str) -> Any | None:
        runs = self._client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
        return runs[0] if runs else None

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            known = self._client.get_experiment_by_name(name)
            location = {"artifact_location": (self._artifacts / name).as_uri()} if self._artifacts else {}
            self._experiments[name] = known.experiment_id if known else self._client.create_experiment(name, **location)
        return self._experiments[name]


def open_tracker(campaign_folder: Path) -> Mlflow:
    """The user's own store, or one in the campaign's folder; asked once, so that one that is out of reach says so now."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    uri, artifacts = os.environ.get("MLFLOW_TRACKING_URI", ""), None
    if not uri:
        uri, artifacts = _own_store(CampaignPaths(campaign_folder).mlruns.absolute())
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    client.search_experiments(max_results=1)
    return Mlflow(client, uri, artifacts)


def _own_store(folder: Path) -> tuple[str, Path | None]:
    """A database where the whole of MLflow is installed, as newer versions want it; plain files for the small client, which has none."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / DATABASE
    if database.exists() or (_has_databases() and not any(folder.glob("*/meta.yaml"))):
        return f"sqlite:///{database}", folder / "artifacts"
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    return folder.as_uri(), None


def _has_databases() -> bool:
    try:
        return bool(importlib.metadata.version("mlflow"))
    except importlib.metadata.PackageNotFoundError:
        return False


def _points(run: TrackedRun) -> Iterator[Any]:
    yield from run.steps
    yield from run.telemetry


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"{TAG_PREFIX}{_name(key)}": value[:LONGEST_TAG] for key, value in tags.items()}


def _name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
