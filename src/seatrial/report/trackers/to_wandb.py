"""Runs in Weights & Biases, by its own settings (WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, `wandb login`); its files go to OUT/wandb.

A run's id follows from its key, so that the same attempt is the same run there however often it is sent.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.paths import CampaignPaths
from seatrial.report.trackers.tracker import TrackedCampaign, TrackedRun

PROJECT = "seatrial"
WHOLE = "seatrial/sent_whole"
LONGEST_TAG = 64
INIT_TIMEOUT_S = 20.0
# What happens on the machine is told by Seatrial; wandb is not to look at it, nor at the code or the output of the harness.
_QUIET = {
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
_ENVIRONMENT = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_START_METHOD": "thread"}


class Wandb:
    """The user's project."""

    def __init__(self, wandb: Any, folder: Path) -> None:
        self._wandb, self._folder = wandb, folder

    @property
    def where(self) -> str:
        mode = os.environ.get("WANDB_MODE", "online")
        return f"{self._folder} ({mode}; `wandb sync` sends it)" if mode == "offline" else f"project {_project()}"

    def send_run(self, run: TrackedRun) -> None:
        tags = [tag[:LONGEST_TAG] for tag in (run.group, run.outcome) if tag]
        config = {**run.params, "seatrial": {**run.tags, "key": run.key}}
        with self._run(run.key, run.name, run.campaign, job_type=run.group, config=config, tags=tags) as made:
            if not made.summary.get(WHOLE):
                self._send_points(made, run)
            made.summary.update({**run.figures, "outcome": run.outcome, WHOLE: True})

    def send_campaign(self, campaign: TrackedCampaign) -> None:
        name = f"campaign {campaign.name}"
        with self._run(campaign.key, name, campaign.name, job_type="campaign", config={"seatrial": campaign.tags}) as made:
            made.summary.update(campaign.tags)
            report = self._wandb.Artifact(re.sub(r"[^\w.-]", "_", f"{campaign.name}-report"), type="report")
            with report.new_file("summary.md", mode="w", encoding="utf-8") as target:
                target.write(campaign.text)
            made.log_artifact(report)

    def _send_points(self, made: Any, run: TrackedRun) -> None:
        made.define_metric("telemetry/*", step_metric="telemetry/elapsed_s")
        # What a broken-off sending left there counts as sent: a step cannot be written twice.
        sent = made.step
        for step, values in _rows(run):
            if step >= sent:
                made.log(values, step=step)

    def _run(self, key: str, name: str, campaign: str, **more: Any) -> Any:
        self._remove_unsent(key)
        return self._wandb.init(
            id=key,
            name=name,
            project=_project(),
            group=campaign,
            dir=str(self._folder.parent),
            resume="allow",
            reinit="create_new",
            settings=self._wandb.Settings(**_known(self._wandb, _QUIET)),
            **more,
        )

    def _remove_unsent(self, key: str) -> None:
        """Offline runs cannot be resumed: what was written of this one before would stand beside it."""
        for old in self._folder.glob(f"offline-run-*-{key}"):
            shutil.rmtree(old, ignore_errors=True)


def open_tracker(campaign_folder: Path) -> Wandb:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import wandb

    folder = Path(os.environ["WANDB_DIR"]) / "wandb" if os.environ.get("WANDB_DIR") else CampaignPaths(campaign_folder).wandb
    folder.parent.mkdir(parents=True, exist_ok=True)
    if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.api.api_key:
        raise RuntimeError("wandb has no API key here: run `wandb login`, or set WANDB_MODE=offline to keep the runs on this machine")
    return Wandb(wandb, folder.absolute())


def _project() -> str:
    return os.environ.get("WANDB_PROJECT") or PROJECT


def _known(wandb: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that the installed version has: some are wandb's own business and come and go."""
    fields = getattr(wandb.Settings, "model_fields", {})
    return {name: value for name, value in settings.items() if name in fields}


def _rows(run: TrackedRun) -> Iterator[tuple[int, dict[str, float]]]:
    """wandb has one axis: telemetry follows the steps on it, and is drawn over its own clock."""
    yield from ((point.step, point.values) for point in run.steps)
    after = run.steps[-1].step + 1 if run.steps else 0
    for at, point in enumerate(run.telemetry):
        values = {f"telemetry/{name}": value for name, value in point.values.items()}
        yield after + at, {**values, "telemetry/elapsed_s": float(point.step)}
