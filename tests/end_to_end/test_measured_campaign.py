"""What surrounds the step times, in whole campaigns through the real command line: telemetry, ETA, start-up, the lines for people,
provenance, and the verbs that read them back."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from seatrial.records import columns
from seatrial.records.telemetry import HOST_COLUMNS
from seatrial.tables import read_table
from tests.harness import Harness

MEASURED = """
name: measured
workload: dummy
settings: {step_ms: 20, log_every: 10}
launcher: torchrun
place: {kind: local, ranks: 2}
axes: {micro_batch: [8, 16]}
steps: 100
timing: {log_every: 10, eta_mode: global_max}
telemetry: {gpu_s: 0.5, host_s: 0.5}
output: out
"""
HEARTBEAT = re.compile(
    r"^\[INFO\] heartbeat mb(?:8|16) r1: last_step=(?:\d+|none), iter_ms_p50=(?:[\d.]+|none), "
    r"eta=(?:\d\d:\d\d:\d\d\([\d.]+s\)|none), eta_mode=\w+, remain_steps=(?:\d+|none)",
    re.MULTILINE,
)


@pytest.mark.torch
def test_a_campaign_tells_what_the_machine_did_and_when_it_would_end(harness: Harness) -> None:
    said = harness.run("run", str(harness.plan(MEASURED)), "--heartbeat", "1")
    attempt = harness.out.run("mb8_r1").attempt(1)

    assert len(HEARTBEAT.findall(said)) >= 2, said
    assert re.search(r"^ETA: off by ", said, re.MULTILINE)
    samples = read_table(attempt.host_telemetry)
    assert list(samples[0]) == list(HOST_COLUMNS) and len(samples) >= 3
    assert max(int(row["train_proc_count"] or 0) for row in samples) >= 3, "torchrun and two ranks"
    account = json.loads(attempt.telemetry.read_text())
    assert account["host"]["rows"] == len(samples) and not account["host"]["empty"]
    for row in harness.manifest():
        assert int(row["host_telemetry_rows"]) >= 3
        assert row["host_telemetry_empty_flag"] == "false"

    measured = {row["run"]: row for row in read_table(harness.out.per_run_metrics)}["mb8_r1"]
    parts = [float(measured[name]) for name in columns.STARTUP_COLUMNS if measured[name]]
    assert sum(parts) == pytest.approx(float(measured["startup_sec"]), abs=0.01)
    assert float(measured["startup_launch_sec"]) > 0 and float(measured["startup_import_sec"]) > 0
    assert float(measured["host_rss_peak_mib"]) > 0 and measured["eta_mode_effective"] == "global_max"
    points = read_table(harness.out.eta_points)
    assert {row["eta_mode"] for row in points} == {"rank0", "global_max"}
    assert all(float(row["eta_low_sec"]) <= float(row["eta_sec"]) <= float(row["eta_high_sec"]) for row in points)
    summary = harness.out.summary_md.read_text()
    assert all(heading in summary for heading in ("| ETA quality |", "## Start-up", "## What the machine did"))


@pytest.mark.torch
def test_the_trainer_says_the_seeds_lines_and_they_read_back(harness: Harness) -> None:
    harness.run("run", str(harness.plan(MEASURED)), "--only", "mb8")
    lines = harness.out.run("mb8_r1").attempt(1).train_log.read_text()

    assert re.search(r" - INFO - Step 50: Loss \d+\.\d{4}$", lines, re.MULTILINE)
    assert re.search(r" - INFO - Timing\(window=100\): data_wait_ms:p50=[\d.]+ p90=[\d.]+ \| preprocess_ms:p50=", lines)
    told = re.findall(r"TimingETA step=\d+ remain_steps=\d+ eta_sec=[\d.]+ eta_hms=\d\d:\d\d:\d\d mode=(\w+) basis_iter_ms=", lines)
    assert told and set(told) == {"global_max"}
    assert set(re.findall(r"TimingRank step=50 rank=(\d) loss=", lines)) == {"0", "1"}


def test_provenance_and_diff_name_what_differs_between_two_runs(harness: Harness) -> None:
    harness.run("run", str(harness.plan(MEASURED.replace("torchrun", "python"))), env={"NCCL_ALGO": "Ring", "HF_TOKEN": "hf_not_for_you_1"})
    stored = json.loads(harness.out.run("mb8_r1").attempt(1).provenance.read_text())

    assert stored["environment"]["NCCL_ALGO"] == "Ring" and stored["environment"]["HF_TOKEN"] == "***"
    assert stored["plan_hash"] and stored["fingerprint"] and stored["python"] and stored["nics"] is not None
    said = harness.run("diff", "out/mb8_r1", "out/mb16_r1")
    assert re.search(r"micro_batch\s+8\s+.*16", said), said
    document = json.loads(harness.run("diff", "out/mb8_r1", "out/mb16_r1", "--json").splitlines()[-1])
    assert "micro_batch" in json.dumps(document)


def test_any_table_can_be_had_as_csv_and_parquet(harness: Harness) -> None:
    polars = pytest.importorskip("polars")
    harness.run("run", str(harness.plan(MEASURED.replace("torchrun", "python"))))

    steps = list(csv.DictReader(io.StringIO(harness.run("export", "out", "steps"))))
    assert len(steps) == 2 * 2 * 100
    harness.run("export", "out", "steps", "host_telemetry", "runs", "--format", "parquet", "-o", "tables")
    assert polars.read_parquet(harness.folder / "tables" / "steps.parquet").height == len(steps)
    assert polars.read_parquet(harness.folder / "tables" / "runs.parquet")["micro_batch"].sort().to_list() == [8, 16]


def test_what_can_only_fail_is_refused_by_doctor_and_by_run_alike(harness: Harness) -> None:
    plan = str(harness.plan("name: p\nworkload: {script: no_such.py}\nlauncher: python\noutput: out\n"))

    by_doctor, by_run = harness.run("doctor", plan, code=2), harness.run("run", plan, code=2)

    for said in (by_doctor, by_run):
        assert "no_such.py" in said and "can't open file" in said
    assert not list(harness.out.folder.glob("*/attempt-*"))
    assert json.loads(harness.run("doctor", "--json", code=None).splitlines()[-1])["checks"]
