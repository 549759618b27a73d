"""What was asked for and what it came to, and how that reaches the run's events."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from seatrial.probe import Probe
from seatrial_workloads.common.choice import AS_REQUESTED, Choice, as_requested, record
from tests.workloads.ranks import events


def test_nothing_stood_in_the_way() -> None:
    assert as_requested("bf16") == Choice("bf16", "bf16", AS_REQUESTED)


def test_each_choice_is_an_event_by_the_name_of_its_setting(tmp_path: Path) -> None:
    with Probe(tmp_path) as probe:
        record({}, probe)
        record({"precision": Choice("bf16", "fp32", "CPU: fp32"), "tf32": as_requested(None)}, probe)
    told = [(event["setting"], event["requested"], event["effective"], event["reason"]) for event in events(tmp_path, "effective")]
    assert told == [("precision", "bf16", "fp32", "CPU: fp32"), ("tf32", None, None, AS_REQUESTED)]


def test_settings_that_stand_on_it_load_nothing_of_the_probe() -> None:
    code = "import sys, seatrial_workloads.contrastive.settings; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "seatrial_workloads.common.choice" in loaded
    assert [name for name in loaded if name.startswith("seatrial.probe")] == []
