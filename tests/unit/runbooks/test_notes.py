"""What is said of variables that change nothing, or not what one might think."""

from __future__ import annotations

import pytest

from seatrial_runbooks.stage1.notes import notes
from seatrial_runbooks.stage1.variables import read

SAME_STEPS = "[INFO] MODE=ab: timing points of both groups are taken every 20 steps"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, [SAME_STEPS]),
        ({"AB_OLD_LOG_EVERY": "20"}, []),
        ({"MODE": "sweep", "SWEEP_LOG_EVERY": "50", "SWEEP_NUM_WORKERS_LIST": "4,6"}, []),
        ({"MODE": "both", "SWEEP_LOG_EVERY": "50", "AB_MICRO_BATCH": "64"}, [SAME_STEPS]),
        (
            {"MODE": "sweep", "MANIFEST_WRITE_RETRIES": "5", "MANIFEST_WRITE_RETRY_SLEEP_SEC": "1"},
            ["[INFO] no effect here: MANIFEST_WRITE_RETRIES, MANIFEST_WRITE_RETRY_SLEEP_SEC; a file that the disk does not take"],
        ),
        (
            {"MODE": "sweep", "SWEEP_NUM_WORKERS": "4", "SWEEP_NUM_WORKERS_LIST": "6"},
            ["[WARN] SWEEP_NUM_WORKERS has no effect: SWEEP_NUM_WORKERS_LIST stands over it"],
        ),
        (
            {"MODE": "sweep", "MASTER_PORT": "29500", "MASTER_PORT_BASE": "1"},
            ["[WARN] MASTER_PORT_BASE has no effect: MASTER_PORT stands over it"],
        ),
        (
            {"SWEEP_MICRO_BATCHES": "160", "SWEEP_LOG_EVERY": "50"},
            ["[WARN] no effect of SWEEP_LOG_EVERY and 1 more: MODE is ab; give MODE=sweep or MODE=both if that is meant", SAME_STEPS],
        ),
        (
            {"MODE": "sweep", "AB_MICRO_BATCH": "160"},
            ["[WARN] no effect of AB_MICRO_BATCH: MODE is sweep; give MODE=ab or MODE=both if that is meant"],
        ),
        ({"MODE": "sweep", "ETA_MIN_SAMPLES": "1"}, ["[INFO] ETA_MIN_SAMPLES is 1: a time to go is said from 2 timed steps on"]),
        (
            {"MODE": "sweep", "FIXED_SLICE_SECONDS": "2.0", "HOST_TELEMETRY_INTERVAL_SEC": "5", "TORCH_COMPILE_MODE": "default"},
            [
                "[INFO] no effect here: FIXED_SLICE_SECONDS (ENABLE_LENGTH_FIXED_SLICE is false), HOST_TELEMETRY_INTERVAL_SEC "
                "(ENABLE_HOST_TELEMETRY is false), TORCH_COMPILE_MODE (ENABLE_TORCH_COMPILE is false)"
            ],
        ),
        ({"MODE": "sweep", "FIXED_SLICE_SECONDS": "2.0", "ENABLE_LENGTH_FIXED_SLICE": "true"}, []),
        ({"MODE": "sweep", "MAX_STEPS": "20"}, ["[WARN] lines every 100 steps in a run of 21"]),
    ],
)
def test_notes(environ: dict[str, str], said: list[str]) -> None:
    lines = notes(read(environ))
    assert len(lines) == len(said)
    for line, begins in zip(lines, said, strict=True):
        assert line.startswith(begins)
