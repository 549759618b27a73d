"""`--track` on a real campaign: runs are sent as they end, an unreachable tracker changes nothing, and `report` sends the rest."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.facts import states
from tests.harness import ENVIRONMENT, Harness, skip_without
from tests.waiting import TIMEOUT_S, wait_until

skip_without("tensorboard", "mlflow")

PLAN = """
name: tracked
workload: dummy
settings: {step_ms: 3, log_every: 10}
launcher: python
place: {kind: local, ranks: 1}
axes:
  micro_batch: [4, 8]
repeats: 1
steps: 60
timing: {log_every: 10}
output: out
"""
# Nothing listens on the discard port: connections are refused at once.
UNREACHABLE = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}


def tracked_folders(harness: Harness) -> list[str]:
    found = harness.out.tensorboard.rglob("events.out.tfevents.*")
    return sorted(str(path.parent.relative_to(harness.out.tensorboard)) for path in found)


def test_an_unreachable_tracker_changes_nothing_and_report_sends_the_rest(harness: Harness) -> None:
    plan = str(harness.plan(PLAN))
    text = harness.run("run", plan, "--track", "tensorboard", "--track", "mlflow", env=UNREACHABLE)
    assert "PASS" in text
    assert "tensorboard: 2 of 2 runs sent to" in text
    assert "mlflow: 0 of 2 runs sent; 2 not (" in text
    assert f"`seatrial report {harness.out.folder} --track mlflow` sends what is missing" in text
    assert tracked_folders(harness) == ["campaign", "mb4_r1/attempt-1", "mb8_r1/attempt-1"]
    assert "mlflow: 2 of 2 runs sent to file://" in harness.run("report", "out", "--track", "mlflow")
    text = harness.run("run", plan, "--track", "tensorboard")
    assert states(text, "tensorboard: 0 of 0 runs sent", 2, "`seatrial report ")


def test_an_interrupted_campaign_has_sent_what_was_over(harness: Harness) -> None:
    slow = PLAN.replace("steps: 60", "steps: 700")
    process = harness.start("run", str(harness.plan(slow)), "--track", "tensorboard")
    wait_until(lambda: len(list(harness.folder.glob("out/*/attempt-1/events_rank0.jsonl"))) == 2, "the second run wrote events")
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 130, text
    assert "tensorboard: 1 of 2 runs sent to" in text and "; 1 not (interrupted): `seatrial report " in text
    (folder,) = tracked_folders(harness)
    assert Path(folder).parts[0] in ("mb4_r1", "mb8_r1")


def test_no_tracker_is_waited_for_after_a_stop(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        # It accepts the connection and never answers.
        monkeypatch.setitem(ENVIRONMENT, "MLFLOW_TRACKING_URI", f"http://127.0.0.1:{mute.getsockname()[1]}")
        process = harness.start("run", str(harness.plan(PLAN)), "--track", "mlflow")
        mute.settimeout(TIMEOUT_S)
        with mute.accept()[0]:
            harness.run("stop", "out", code=None)
            text, _ = process.communicate(timeout=120)
    assert process.returncode == 130, text
    # A tracker that was waited for gives no answer in the 60 s that it has to start.
    assert "mlflow: 0 of 1 runs sent; 1 not (interrupted)" in text
