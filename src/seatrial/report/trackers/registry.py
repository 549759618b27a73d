"""The trackers there are, whether each is installed here, and how to make one.

In: a name from the command line. Out: a `Tracker`; or a refusal that names the nearest name, or the command that installs it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import UsageError, did_you_mean
from seatrial.report.trackers.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class TrackerKind:
    """One tracker: the package it needs and the module here that speaks to it."""

    package: str
    module: str
    pip: str


TRACKERS = {
    "mlflow": TrackerKind(package="mlflow", module="seatrial.report.trackers.to_mlflow", pip="mlflow"),
    "wandb": TrackerKind(package="wandb", module="seatrial.report.trackers.to_wandb", pip="wandb"),
    "tensorboard": TrackerKind(package="tensorboard", module="seatrial.report.trackers.to_tensorboard", pip="tensorboard"),
}


def chosen_trackers(names: Sequence[str]) -> list[str]:
    """The names, each once, when all of them can be used here; else a UsageError before anything has started."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"--track {name}: there is no such tracker; {did_you_mean(name, TRACKERS)}")
        if not _is_installed(TRACKERS[name].package):
            raise UsageError(f"--track {name}: the package is not installed; run `pip install {TRACKERS[name].pip}`, or leave --track out")
    return list(dict.fromkeys(names))


def open_tracker(name: str, campaign_folder: Path) -> Tracker:
    """The tracker, its package imported; data that stays on this machine goes into the campaign's folder."""
    tracker: Tracker = importlib.import_module(TRACKERS[name].module).open_tracker(campaign_folder)
    return tracker


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # A folder of that name in the working folder (wandb leaves one) is found as a package too, but one without a file.
    return spec is not None and spec.origin is not None
