"""A folder as the driver is started in, and its variables: toy models, two ranks on the CPU, a small tree with its manifest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.records.plan import CampaignPlan
from seatrial_runbooks.stage1.to_plan import plan_mappings
from seatrial_runbooks.stage1.variables import read
from seatrial_workloads.librispeech.tree import write_manifest

NOW = datetime(2026, 2, 18, 17, 56, 21)
SMALL = {
    "MODE": "sweep",
    "INCLUDE": "localhost",
    "WORLD_SIZE": "2",
    "OUTPUT_ROOT": "out",
    "DATASET_ROOT": "tree",
    "DATASET_MANIFEST_PATH": "tree/manifest.tsv",
    "SPEECH_MODEL_PATH": "tiny",
    "TEXT_MODEL_PATH": "tiny",
    "PRETRAINED_CKPT": "none",
    "MAX_STEPS": "3",
    "REPEATS": "1",
    "SWEEP_ZERO_STAGES": "0",
    "SWEEP_MICRO_BATCHES": "4",
    "SWEEP_LOG_EVERY": "1",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a tree in it."""
    (tmp_path / "tree" / "dev-clean" / "1" / "2").mkdir(parents=True)
    (tmp_path / "tree" / "dev-clean" / "1" / "2" / "a.flac").touch()
    write_manifest(tmp_path / "tree" / "manifest.tsv", {"dev-clean/1/2/a.flac": 16000}, 16000)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small() -> dict[str, str]:
    """The least that the driver must be told to run on a CPU."""
    return dict(SMALL)


@pytest.fixture
def plans(folder: Path) -> Callable[..., list[CampaignPlan]]:
    """The plans of some variables, resolved as the driver does."""

    def made(**environ: str) -> list[CampaignPlan]:
        mappings = plan_mappings(read({**SMALL, **environ}), folder, NOW)
        return [resolve_plan(plan_from_mapping(mapping, "test"), source="test", cwd=folder) for mapping in mappings]

    return made
