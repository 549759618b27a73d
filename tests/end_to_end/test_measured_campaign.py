"""What surrounds the step times, in a campaign under torchrun through the real command line: telemetry, ETA, start-up, log lines."""

from __future__ import annotations

import json
import re

import pytest

from seatrial.core.tables import read_table
from seatrial.records import columns
from seatrial.records.telemetry import HOST_COLUMNS
from tests.harness import Harness

MEASURED = """
name: measured
workload: dummy
settings: {step_ms: 20, log_every: 10}
launcher: torchrun
place: {kind: local, ranks: 2}
axes: {micro_batch: [8]}
steps: 100
timing: {log_every: 10, eta_mode: global_max}
telemetry: {gpu_s: 0.5, host_s: 0.5}
output: out
"""
HEARTBEAT = re.compile(
    r"^\[INFO\] heartbeat mb8 r1: last_step=(?:\d+|none), iter_ms_p50=(?:[\d.]+|none), "
    r"eta=(?:\d\d:\d\d:\d\d\([\d.]+s\)|none), eta_mode=\w+, remain_steps=(?:\d+|none)",
    re.MULTILINE,
)


@pytest.mark.torch
def test_telemetry_eta_start_up_and_log_lines_of_a_campaign(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(MEASURED)), "--heartbeat", "1", "--full")
    assert len(HEARTBEAT.findall(text)) >= 2, text
    assert re.search(r"^ETA: off by ", text, re.MULTILINE)
    _check_telemetry(harness)
    _check_figures(harness)
    attempt = harness.out.run("mb8_r1").attempt(1)
    assert len(attempt.all_events()) == 2 and list(attempt.rank_logs.rglob("stdout.log"))
    _check_train_log(attempt.train_log.read_text())


def _check_telemetry(harness: Harness) -> None:
    attempt = harness.out.run("mb8_r1").attempt(1)
    samples = read_table(attempt.host_telemetry)
    assert list(samples[0]) == list(HOST_COLUMNS) and len(samples) >= 3
    assert max(int(row["train_proc_count"] or 0) for row in samples) >= 3, "torchrun and two ranks"
    account = json.loads(attempt.telemetry.read_text())
    assert account["host"]["rows"] == len(samples) and not account["host"]["empty"]
    (row,) = harness.manifest()
    assert int(row["host_telemetry_rows"]) >= 3 and row["host_telemetry_empty_flag"] == "false"


def _check_figures(harness: Harness) -> None:
    (measured,) = read_table(harness.out.per_run_metrics)
    parts = [float(measured[name]) for name in columns.STARTUP_COLUMNS if measured[name]]
    assert sum(parts) == pytest.approx(float(measured["startup_sec"]), abs=0.01)
    assert float(measured["startup_launch_sec"]) > 0 and float(measured["startup_import_sec"]) > 0
    assert float(measured["host_rss_peak_mib"]) > 0 and measured["eta_mode_effective"] == "global_max"
    points = read_table(harness.out.eta_points)
    assert {row["eta_mode"] for row in points} == {"rank0", "global_max"}
    assert all(float(row["eta_low_sec"]) <= float(row["eta_sec"]) <= float(row["eta_high_sec"]) for row in points)
    summary = harness.out.summary_md.read_text()
    assert all(heading in summary for heading in ("| ETA quality |", "## Start-up", "## What the machine did"))


def _check_train_log(lines: str) -> None:
    """The lines of the seed, as its own scripts read them."""
    assert re.search(r" - INFO - Step 50: Loss \d+\.\d{4}$", lines, re.MULTILINE)
    assert re.search(r" - INFO - Timing\(window=100\): data_wait_ms:p50=[\d.]+ p90=[\d.]+ \| preprocess_ms:p50=", lines)
    modes = re.findall(r"TimingETA step=\d+ remain_steps=\d+ eta_sec=[\d.]+ eta_hms=\d\d:\d\d:\d\d mode=(\w+) basis_iter_ms=", lines)
    assert modes and set(modes) == {"global_max"}
    assert set(re.findall(r"TimingRank step=50 rank=(\d) loss=", lines)) == {"0", "1"}


def test_what_can_only_fail_is_refused_by_doctor_and_by_run_alike(harness: Harness) -> None:
    plan = str(harness.plan("name: p\nworkload: {script: no_such.py}\nlauncher: python\noutput: out\n"))
    for text in (harness.run("doctor", plan, code=2), harness.run("run", plan, code=2)):
        assert "no_such.py" in text and "can't open file" in text
    assert not list(harness.out.folder.glob("*/attempt-*"))
    assert json.loads(harness.run("doctor", "--json", code=None).splitlines()[-1])["checks"]
