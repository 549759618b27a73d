"""Files of a rank: events, heartbeats, bad disks, forks and exits."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading

import pytest

from seatrial.core.fallback import merge_fallback
from seatrial.probe import Probe
from seatrial.probe.identity import identify
from seatrial.probe.timeline import StepRecord
from seatrial.probe.writer import HeartbeatThread, LineFile, LoopState
from seatrial.records.events import HEARTBEAT_FIELDS
from tests.waiting import wait_until


@pytest.fixture
def state():
    return {"phase": "start"}


@pytest.fixture
def heart(lines, clock, state):
    identity = identify(lines.run_dir, rank=0, attempt=2, env={})
    return HeartbeatThread(
        LineFile(lines.run_dir / "heartbeat_rank0.jsonl"),
        identity,
        state=lambda: LoopState(**state),
        on_tick=lambda: None,
        every_s=5.0,
        monotonic=clock,
        wall=lambda: 1794713095.25,
    )


def ended_step(number: int, iter_ms: float = 10.0) -> StepRecord:
    return StepRecord(number, 100.0 + number, 50.0 + number, iter_ms, None, None, [None] * 5, paused_s=1.5)


def test_a_heartbeat_has_the_fields_of_the_contract(heart, lines):
    heart.write("boot")
    (beat,) = lines.heartbeats()
    assert tuple(beat) == HEARTBEAT_FIELDS
    assert (beat["ts"], beat["iso"], beat["attempt"]) == (1794713095.25, "2026-11-15T03:24:55.250+00:00", 2)
    assert [beat[name] for name in ("step", "step_t", "iter_ms_p50", "paused_s")] == [None] * 4


def test_a_heartbeat_has_the_last_step_and_the_median_of_the_newest(heart, lines, state):
    state.update(newest=[ended_step(number, iter_ms=iter_ms) for number, iter_ms in enumerate((90.0, 10.0, 12.0))])
    heart.write("beat")
    (beat,) = lines.heartbeats()
    assert [beat[name] for name in ("step", "step_t", "iter_ms_p50", "paused_s")] == [2, 102.0, 12.0, 1.5]


def test_one_every_five_seconds_and_one_when_the_first_step_ended(heart, clock, lines, state):
    heart.write("boot")
    for second in range(12):
        clock.pass_ms(1000)
        if second == 2:
            state.update(newest=[ended_step(0)], phase="fwd")
        heart.tick()
    assert [(beat["msg"], beat["step"]) for beat in lines.heartbeats()] == [("boot", None), ("step_end", 0), ("beat", 0)]


def test_progress_is_a_heartbeat_with_more_fields_and_the_last_one_counts(lines):
    probe = Probe(lines.run_dir, heartbeat_s=None)
    for loss in (3.0, 2.0):
        probe.progress(loss=loss, grad_norm=float("nan"), rank=7)
    probe.close()
    (beat,) = (beat for beat in lines.heartbeats() if beat["msg"] == "progress")
    assert tuple(beat) == (*HEARTBEAT_FIELDS, "loss", "grad_norm")
    assert (beat["loss"], beat["grad_norm"], beat["rank"]) == (2.0, None, 0)


def test_the_thread_writes_heartbeats_and_flushes_the_buffer(lines):
    probe = Probe(lines.run_dir, heartbeat_s=0.01)
    with probe.startup("model"):
        wait_until(lambda: any(beat["phase"] == "startup:model" for beat in lines.heartbeats()))
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


NO_SPACE = "No space left on device"


@pytest.fixture
def no_fallback(tmp_path, monkeypatch):
    """A file is where the fallback's folder would have to be created."""
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "taken" / "fallback"))


@pytest.fixture
def full(tmp_path, full_disk):
    """A file on a disk that is full, until it is removed."""
    path = tmp_path / "events.jsonl"
    full_disk(path)
    return path


def test_lines_are_appended_whole(tmp_path):
    path = tmp_path / "deep" / "events.jsonl"
    for part in (["a", "b"], [], ["c"]):
        LineFile(path).write(part)
    assert path.read_text() == "a\nb\nc\n"


def test_lines_on_a_full_disk_go_to_the_fallback_and_are_merged_back(tmp_path, full, caplog):
    file = LineFile(full)
    with caplog.at_level(logging.WARNING):
        file.write(["a", "b"])
        file.write(["c"])
    file.close()
    assert file.lost_lines == 0
    assert NO_SPACE in file.status_note("event")
    assert [record.getMessage().count("fallback folder") for record in caplog.records] == [1], "logged once"
    full.unlink()
    (merged,) = merge_fallback(tmp_path)
    assert (merged.file, merged.merged) == ("events.jsonl", True)
    assert full.read_text() == "a\nb\nc\n"


@pytest.mark.usefixtures("no_fallback")
def test_without_a_fallback_lines_are_lost_counted_and_logged_once(full, caplog):
    file = LineFile(full)
    with caplog.at_level(logging.WARNING):
        file.write(["a", "b"])
        file.write(["c"])
    assert file.lost_lines == 3
    assert file.status_note("event").startswith("3 event lines lost")
    assert NO_SPACE in file.status_note("event")
    assert len(caplog.records) == 1
    assert "training continues, its measurements are being lost" in caplog.text


@pytest.mark.usefixtures("no_fallback")
def test_training_goes_on_when_nothing_can_be_written_and_the_heartbeat_reports_it(make_probe, lines, full_disk):
    lines.run_dir.mkdir()
    full_disk(lines.run_dir / "events_rank0.jsonl")
    with make_probe() as probe:
        for _ in range(3):
            with probe.step():
                pass
    message = lines.heartbeats()[-1]["msg"]
    assert message.startswith("done; 5 event lines lost") and NO_SPACE in message


LOOP = """
import sys
from seatrial.probe import Probe
probe = Probe(sys.argv[1])
for i in range(3):
    with probe.step():
        pass
"""


@pytest.mark.parametrize(
    ("ending", "returncode", "stops"),
    [
        ("", 0, 1),
        ("sys.exit(0)", 0, 1),
        ("raise RuntimeError('lost')", 1, 0),
        ("with probe.step(): sys.exit(3)", 3, 0),
    ],
)
def test_how_a_process_ends_decides_whether_it_stopped_cleanly(lines, ending, returncode, stops):
    done = subprocess.run([sys.executable, "-c", LOOP + ending, str(lines.run_dir)], capture_output=True, timeout=60, check=False)
    assert done.returncode == returncode, done.stderr.decode()
    assert len(lines.events("stop")) == stops
    assert len(lines.steps()) == 3, "what was measured before the end is written"


def test_a_forked_child_writes_nothing(lines):
    script = LOOP + textwrap.dedent("""
        import os
        child = os.fork()
        if child == 0:
            for i in range(5000):
                with probe.step(): pass
            probe.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with probe.step(): pass
        probe.close()
    """)
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(lines.run_dir)], check=True, timeout=60)
    assert [step["step"] for step in lines.steps()] == [0, 1, 2, 3]
    assert len({beat["pid"] for beat in lines.heartbeats()}) == 1
    assert len(lines.events("stop")) == 1
