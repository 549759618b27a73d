"""What cannot work is told before the first run, by the names of the variables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.errors import UsageError
from seatrial.records.campaign_plan import CampaignPlan
from seatrial_runbooks.stage1 import before_start
from seatrial_runbooks.stage1.before_start import refuse_unasked, refuse_unknown_baseline, refuse_what_cannot_work
from seatrial_runbooks.stage1.variables import read
from tests.unit.runbooks.conftest import SMALL

Plans = Callable[..., list[CampaignPlan]]


@pytest.fixture
def told(plans: Plans, folder: Path) -> Callable[..., str]:
    """What is said of some variables; empty for nothing."""

    def of(**environ: str) -> str:
        try:
            refuse_what_cannot_work(plans(**environ), read({**SMALL, **environ}), folder)
        except UsageError as error:
            return str(error)
        return ""

    return of


def test_what_can_work_is_let_pass(told: Callable[..., str]) -> None:
    assert told() == told(MODE="both") == ""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DATASET_ROOT": "nowhere", "DATASET_MANIFEST_PATH": ""}, "DATASET_ROOT: there is no folder nowhere: prepare LibriSpeech"),
        (
            {"DATASET_MANIFEST_PATH": "wrong.tsv"},
            "DATASET_MANIFEST_PATH: there is no manifest wrong.tsv; tree holds one: give DATASET_MANIFEST_PATH=tree/manifest.tsv",
        ),
        (
            {"DATASET_MANIFEST_PATH": "", "LIBRISPEECH_MANIFEST_PATH": "wrong.tsv"},
            "LIBRISPEECH_MANIFEST_PATH: there is no manifest wrong.tsv; tree holds one: give LIBRISPEECH_MANIFEST_PATH=tree/manifest.tsv",
        ),
        (
            {"PRETRAINED_CKPT": "gone.pth"},
            "PRETRAINED_CKPT is gone.pth, and there is no such file: correct it, or give none to start without",
        ),
        (
            {"SPEECH_MODEL_PATH": "data/weights/wav2vec2-base"},
            "SPEECH_MODEL_PATH is data/weights/wav2vec2-base, and there is no such folder: put its weights there, or give base or tiny for "
            "random weights of that shape",
        ),
        ({"TEXT_MODEL_PATH": "tinny"}, "TEXT_MODEL_PATH is tinny, and there is no such folder: did you mean 'tiny'?"),
        ({"TEXT_MODEL_PATH": "tree/bert"}, "TEXT_MODEL_PATH is tree/bert, and there is no such folder: put its weights there"),
        ({"PRECISION_MODE": "fp16"}, "PRECISION_MODE is fp16, and INCLUDE=localhost runs on the CPU"),
        ({"MODEL_LOAD_DTYPE": "fp16"}, "MODEL_LOAD_DTYPE is fp16, and INCLUDE=localhost runs on the CPU"),
        ({"EXPERIMENT": "limit_longest_1-3_stage"}, "EXPERIMENT: there is no experiment 'limit_longest_1-3_stage': did you mean"),
        ({"SWEEP_MICRO_BATCHES": "4,1"}, "SWEEP_MICRO_BATCHES is 1: an utterance alone has nothing to be told apart from"),
        ({"MODE": "ab", "AB_MICRO_BATCH": "1"}, "AB_MICRO_BATCH is 1: an utterance alone"),
        ({"LENGTH_BUCKET_BOUNDARIES_SEC": "2,1"}, "LENGTH_BUCKET_BOUNDARIES_SEC is '2.0,1.0'; expected rising seconds"),
        ({"ENABLE_LENGTH_FIXED_SLICE": "true", "FIXED_SLICE_SECONDS": "0.01"}, "FIXED_SLICE_SECONDS is 0.01: the speech encoder"),
        (
            {"ENABLE_LENGTH_BUCKET": "true", "DATASET_USE_TRIM": "true", "DATASET_OFFLINE_TRIMMED": "false"},
            "ENABLE_LENGTH_BUCKET need the length that is fed, and DATASET_USE_TRIM changes it while loading",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_names_its_variable(told: Callable[..., str], environ: dict[str, str], expected: str) -> None:
    assert told(**environ).startswith(expected)


def test_a_model_that_may_be_on_a_hub_is_let_pass(told: Callable[..., str]) -> None:
    assert told(SPEECH_MODEL_PATH="facebook/wav2vec2-base", TEXT_MODEL_PATH="bert-base-uncased") == ""


def test_all_of_it_is_told_each_once(told: Callable[..., str]) -> None:
    said = told(MODE="both", SWEEP_MICRO_BATCHES="4,8", DATASET_ROOT="nowhere", PRETRAINED_CKPT="gone.pth").splitlines()
    assert said[0] == "this cannot be run:"
    assert [line.split()[0] for line in said[1:]] == ["DATASET_ROOT:", "PRETRAINED_CKPT"]


def test_a_number_of_runs_that_looks_like_a_slip_is_asked_about(plans: Plans) -> None:
    many = plans(REPEATS="1001")
    with pytest.raises(UsageError, match="1,001 runs are asked for: add --yes if that is meant"):
        refuse_unasked(many, yes=False)
    refuse_unasked(many, yes=True)
    refuse_unasked(plans(), yes=False)


def test_a_baseline_must_be_a_group(plans: Callable[..., list[CampaignPlan]], folder: Path) -> None:
    made = plans()
    for asked in ("sweep_z0_mb4_nw2_pf2", "old_like"):
        refuse_unknown_baseline(made, read({**SMALL, "BASELINE_GROUP": asked}))
    with pytest.raises(UsageError, match="BASELINE_GROUP is sweep_z0_mb4_nw2_pf3, and no group has that name: did you mean"):
        refuse_unknown_baseline(made, read({**SMALL, "BASELINE_GROUP": "sweep_z0_mb4_nw2_pf3"}))
    (Path(made[0].output) / "sweep_z0_mb4_nw2_pf3_r1").mkdir(parents=True)
    refuse_unknown_baseline(made, read({**SMALL, "BASELINE_GROUP": "sweep_z0_mb4_nw2_pf3"}))


def test_a_python_without_hydra_is_told_what_to_install(told: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra", None)
    monkeypatch.delitem(sys.modules, "seatrial_workloads.contrastive.hydra_config.compose", raising=False)
    assert told() == before_start.NEEDS_HYDRA
