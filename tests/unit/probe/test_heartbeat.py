"""Signs of life: when they are written and what they say."""

from __future__ import annotations

import json
import threading

import pytest

from seatrial.probe import Probe
from seatrial.probe.event_lines import StepRecord
from seatrial.probe.heartbeat import Heart, Standing
from seatrial.probe.identity import identify
from seatrial.probe.line_file import LineFile
from seatrial.records.events import HEARTBEAT_FIELDS
from tests.waiting import wait_until


@pytest.fixture
def standing():
    return {"phase": "start"}


@pytest.fixture
def heart(lines, clock, standing):
    identity = identify(lines.run_dir, rank=0, attempt=2, env={})
    return Heart(
        LineFile(lines.run_dir / "heartbeat_rank0.jsonl"),
        identity,
        standing=lambda: Standing(**standing),
        on_tick=lambda: None,
        every_s=5.0,
        monotonic=clock,
        wall=lambda: 1794713095.25,
    )


def ended_step(number: int, iter_ms: float = 10.0) -> StepRecord:
    return StepRecord(number, 100.0 + number, 50.0 + number, iter_ms, None, None, [None] * 5, paused_s=1.5)


def test_a_line_has_the_fields_of_the_contract(heart, lines):
    heart.beat("boot")
    (beat,) = lines.heartbeats()
    assert tuple(beat) == HEARTBEAT_FIELDS
    assert (beat["ts"], beat["iso"], beat["attempt"]) == (1794713095.25, "2026-11-15T03:24:55.250+00:00", 2)
    assert [beat[name] for name in ("step", "step_t", "iter_ms_p50", "paused_s")] == [None] * 4


def test_a_line_tells_when_the_last_step_ended_and_how_long_the_newest_took(heart, lines, standing):
    standing.update(newest=[ended_step(number, iter_ms=iter_ms) for number, iter_ms in enumerate((90.0, 10.0, 12.0))])
    heart.beat("beat")
    (beat,) = lines.heartbeats()
    assert [beat[name] for name in ("step", "step_t", "iter_ms_p50", "paused_s")] == [2, 102.0, 12.0, 1.5]


def test_one_every_five_seconds_and_one_when_the_first_step_ended(heart, clock, lines, standing):
    heart.beat("boot")
    for second in range(12):
        clock.pass_ms(1000)
        if second == 2:
            standing.update(newest=[ended_step(0)], phase="fwd")
        heart.tick()
    assert [(beat["msg"], beat["step"]) for beat in lines.heartbeats()] == [("boot", None), ("step_end", 0), ("beat", 0)]


def test_the_thread_beats_and_empties_the_buffer(lines):
    probe = Probe(lines.run_dir, heartbeat_s=0.01)
    with probe.step(), probe.phase("bwd"):
        wait_until(lambda: any(beat["phase"] == "bwd" for beat in lines.heartbeats()))
    with probe.step():
        wait_until(lambda: len(lines.steps()) == 1)
    with probe.pause("eval"):
        wait_until(lambda: any(beat["phase"] == "pause:eval" for beat in lines.heartbeats()))
    probe.close()
    beats = lines.heartbeats()
    assert (beats[0]["msg"], beats[0]["phase"], beats[0]["step"]) == ("boot", "start", None)
    assert (beats[-1]["msg"], beats[-1]["phase"], beats[-1]["step"]) == ("done", "done", 1)
    assert not any(thread.name == "seatrial-heartbeat" for thread in threading.enumerate())


def test_the_first_beat_is_there_before_the_first_step(lines):
    with Probe(lines.run_dir):
        assert [json.dumps(beat["msg"]) for beat in lines.heartbeats()] == ['"boot"']
