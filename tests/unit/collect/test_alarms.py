"""Alarms of a run as cautions, and samples without an account."""

from __future__ import annotations

import json
from pathlib import Path

from seatrial.collect.alarms import alarm_cautions
from seatrial.collect.sample_count import CUT_OFF, counted_samples
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import TelemetrySpec


def test_the_worst_alarm_of_each_kind_is_told(tmp_path: Path) -> None:
    path = tmp_path / "alarms.jsonl"
    alarms = [
        {"kind": "spike", "ratio": 2.5, "text": "steps take 50 ms"},
        {"kind": "spike", "ratio": 4.0, "text": "steps take 80 ms"},
        {"kind": "spike_over", "ratio": 1.0, "text": "over"},
        {"kind": "silence", "ratio": 900.0, "text": "no step has ended for 18 s"},
    ]
    path.write_text("".join(json.dumps(alarm) + "\n" for alarm in alarms) + '{"kind": "spi')

    torn, spike, silence = alarm_cautions("mb8_r1", path)
    assert (torn.kind, torn.text) == ("bad_rows", "In alarms.jsonl 1 line was passed over: torn or no alarm.")

    assert spike.text == "Steps became much slower while it ran: steps take 80 ms (alarms.jsonl)."
    assert (spike.kind, spike.subject, spike.numbers) == ("spike", "mb8_r1", {"alarms": 2, "ratio": 4.0})
    assert silence.text == "It stood still for a while: no step has ended for 18 s (alarms.jsonl)."


def test_no_alarm_no_caution(tmp_path: Path) -> None:
    assert list(alarm_cautions("mb8_r1", tmp_path / "alarms.jsonl")) == []


def test_samples_of_a_killed_agent_are_counted(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path)
    assert counted_samples(paths, TelemetrySpec()) is None
    paths.host_telemetry.write_text("timestamp,load1\na,1\nb,2\nc,")

    account = counted_samples(paths, TelemetrySpec(host_s=0.5))

    assert account is not None and account.gpu is None and account.host is not None
    assert (account.host.rows, account.host.interval_s, account.host.empty, account.host.note) == (2, 0.5, False, CUT_OFF)
