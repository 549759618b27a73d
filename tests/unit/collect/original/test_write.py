"""One run of the original scripts, written as attempts of ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.collect.attempts import read_attempt
from seatrial.collect.original.endings import outcome_of
from seatrial.collect.original.launcher_log import Block
from seatrial.collect.original.manifest_rows import Row
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.run_specs import spec_of
from seatrial.collect.original.samples import SampleFile
from seatrial.collect.original.spans import span_of
from seatrial.collect.original.train_log import Segment
from seatrial.collect.original.write import Translated, write_attempt
from seatrial.paths import AttemptPaths
from seatrial.records.command import Provenance
from seatrial.records.run_spec import TelemetrySpec

CELLS = {
    "group": "g", "repeat": "1", "status": "success", "exit_code": "0", "world_size": "2", "duration_sec": "60",
    "precision_mode_req": "auto", "precision_mode_effective": "bf16",
}  # fmt: skip
STEP = "2026-02-18 17:56:30,000 INFO Step 10: Loss 2.5"
ORIGINAL = OriginalAttempt(
    row=Row(cells=CELLS), segment=Segment((STEP,)), block=Block(meta={"timestamp": "2026-02-18T17:56:20+08:00"}, output=("starting",))
)
GPU = SampleFile(path=Path("gpu_telemetry.csv"), columns=("epoch_sec", "power_w"), rows=(["1.0", "300"], ["3.0", "310"]))


def written(folder: Path, **changes: Any) -> AttemptPaths:
    spec = spec_of(ORIGINAL, "g", 1, 20)
    values: dict[str, Any] = {"original": ORIGINAL, "spec": spec, "outcome": outcome_of(ORIGINAL, 1, spec, span_of(ORIGINAL, 28_800.0))}
    paths = AttemptPaths(folder / "g_r1" / "attempt-1")
    write_attempt(paths, Translated(**{**values, "provenance": Provenance(host="there"), "zone_s": 28_800.0, **changes}))
    return paths


def test_our_own_reader_takes_it(tmp_path: Path) -> None:
    attempt = read_attempt(written(tmp_path, gpu=GPU))
    assert attempt is not None and attempt.outcome is not None and attempt.provenance.host == "there"
    assert attempt.spec.run == attempt.outcome.run == "g_r1" and attempt.telemetry is not None
    assert attempt.telemetry.gpu is not None and attempt.telemetry.gpu.rows == 2 and attempt.telemetry.host is None


def test_the_account_of_the_samples_goes_by_the_intervals_that_were_asked_for(tmp_path: Path) -> None:
    spec = replace(spec_of(ORIGINAL, "g", 1, 20), telemetry=TelemetrySpec(gpu_s=2.0, host_s=5.0))
    host = SampleFile(path=Path("host_telemetry.csv"), columns=("epoch_sec", "cpu"), rows=(["1.0", "3"], ["6.0", "4"], ["11.0", "5"]))
    account = files.read_json(written(tmp_path, spec=spec, gpu=GPU, host=host).telemetry)
    assert (account["gpu"]["interval_s"], account["gpu"]["rows"]) == (2.0, 2)
    assert (account["host"]["interval_s"], account["host"]["rows"], account["host"]["gaps"]) == (5.0, 3, 0)


def test_events_hold_what_the_settings_came_to_and_no_steps(tmp_path: Path) -> None:
    events = [json.loads(line) for line in written(tmp_path).events(0).read_text().splitlines()]
    assert {event["kind"] for event in events} == {"effective"} and {event["rank"] for event in events} == {0}
    precision = next(event for event in events if event["setting"] == "precision_mode")
    assert (precision["requested"], precision["effective"]) == ("auto", "bf16")


def test_logs_and_samples_lie_where_they_are_looked_for(tmp_path: Path) -> None:
    paths = written(tmp_path, gpu=GPU)
    assert paths.launcher_log.read_text().splitlines()[-1] == STEP and paths.train_log.read_text() == f"{STEP}\n"
    assert paths.gpu_telemetry.read_text().splitlines() == ["epoch_sec,power_w", "1.0,300", "3.0,310"]
    assert not paths.host_telemetry.exists()


def test_what_an_earlier_translation_left_and_nobody_needs_is_removed(tmp_path: Path) -> None:
    written(tmp_path, gpu=GPU)
    paths = written(tmp_path, original=OriginalAttempt(row=ORIGINAL.row))
    assert not paths.gpu_telemetry.exists() and not paths.train_log.exists() and paths.outcome.exists()
