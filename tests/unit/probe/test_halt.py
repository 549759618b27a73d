"""Ending a run early: what counts as a request, and where the loop then ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seatrial.probe import Probe
from seatrial.probe.writer import MAX_HALT_FILE_BYTES, HaltFile, HeartbeatThread
from tests.waiting import wait_until


def request_halt(lines, at_step: Any, attempt: Any = 1, **more: Any) -> None:
    lines.run_dir.mkdir(parents=True, exist_ok=True)
    (lines.run_dir / "halt.json").write_text(json.dumps({"attempt": attempt, "at_step": at_step, "reason": "stalled", **more}))


def train(probe: Probe, batches: int = 10) -> list[int]:
    """The batches a loop came to see."""
    seen = []
    for batch in probe.data(list(range(batches))):
        with probe.step():
            seen.append(batch)
    return seen


@pytest.fixture
def file(tmp_path):
    return HaltFile(tmp_path / "halt.json", attempt=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"attempt": 2}',
        '{"attempt": 1, "at_step": 4, "reason": "another attempt"}',
        '{"attempt": "2", "at_step": 4}',
        '{"attempt": 2, "at_step": -1}',
        '{"attempt": 2, "at_step": true}',
        "[" * 20_000,
        '{"attempt": 2, "at_step": 4, "reason": "' + "x" * MAX_HALT_FILE_BYTES + '"}',
    ],
)
def test_an_invalid_request_is_ignored_and_a_later_one_is_seen(file, tmp_path, text):
    (tmp_path / "halt.json").write_text(text)
    assert file.poll() is None
    assert file.poll() is None
    (tmp_path / "halt.json").write_text('{"attempt": 2, "at_step": 40, "reason": "stalled"}')
    assert file.poll().at_step == 40


def test_a_request_is_returned_once_and_a_new_one_again(file, tmp_path):
    assert file.poll() is None, "there is no file"
    for at_step in (7, 900):
        (tmp_path / "halt.json").write_text(json.dumps({"attempt": 2, "at_step": at_step}))
        request = file.poll()
        assert (request.at_step, request.reason) == (at_step, "no reason given")
        assert file.poll() is None
    (tmp_path / "halt.json").unlink()
    assert file.poll() is None


@pytest.mark.parametrize(("at_step", "steps"), [(0, 0), (4, 4)])
def test_the_loop_ends_before_that_step_as_if_the_data_were_over(make_probe, lines, at_step, steps, caplog):
    request_halt(lines, at_step)
    probe = make_probe()
    assert train(probe) == list(range(steps))
    assert train(probe) == [], "nor is there another epoch"
    assert probe.halted
    probe.close()
    assert probe.halted, "also after the end"
    last = steps - 1 if steps else None
    assert [event["kind"] for event in lines.events() if event["kind"] not in ("step", "span")] == ["start", "halt", "stop"]
    (halt,), (stop,) = lines.events("halt"), lines.events("stop")
    assert (halt["step"], halt["at_step"]) == (last, at_step)
    assert (stop["step"], stop["steps"]) == (last, steps)
    assert lines.heartbeats()[0]["msg"] == f"boot; halting at step {at_step}"
    assert lines.heartbeats()[-1]["msg"] == f"done; halted before step {steps}"
    assert f"rank 0 is to end before step {at_step}: stalled" in caplog.text


def test_a_step_beyond_the_end_changes_nothing(make_probe, lines):
    request_halt(lines, 11)
    with make_probe() as probe:
        assert len(train(probe)) == 10
        assert not probe.halted
    assert not probe.halted
    assert lines.events("halt") == []
    assert lines.heartbeats()[-1]["msg"] == "done"


def test_a_rank_beyond_the_step_ends_at_once_without_more_data(make_probe, lines, tick):
    loaded = []

    def loader():
        for batch in range(10):
            loaded.append(batch)
            yield batch

    probe = make_probe()
    for batch in probe.data(loader()):
        with probe.step():
            if batch == 5:
                request_halt(lines, 2)
                tick()
    probe.close()
    assert len(lines.steps()) == 6
    assert loaded == [0, 1, 2, 3, 4, 5]
    (halt,) = lines.events("halt")
    assert (halt["step"], halt["at_step"]) == (5, 2)


def test_a_request_during_the_wait_for_data_counts_before_the_step(make_probe, lines, tick):
    def loader():
        for batch in range(10):
            if batch == 3:
                request_halt(lines, 3)
                tick()
            yield batch

    probe = make_probe()
    assert len([train_one(probe) for _ in probe.data(loader())]) == 3
    probe.close()
    assert lines.events("halt")[0]["step"] == 2


def test_a_torn_file_is_read_when_it_is_complete(make_probe, lines, caplog, tick):
    probe = make_probe()
    whole = json.dumps({"attempt": 1, "at_step": 4, "reason": "stalled"})
    seen = []
    for batch in probe.data(range(10)):
        with probe.step():
            (lines.run_dir / "halt.json").write_text(whole[: len(whole) * (batch + 1) // 3])
            tick()
            seen.append(lines.heartbeats()[-1]["msg"])
    probe.close()
    assert caplog.text.count("is to end before step 4: stalled") == 1, "though the file was written once more"
    assert seen == ["beat", "step_end", "beat; halting at step 4", "beat; halting at step 4"]


def test_a_halted_loop_does_not_begin_again_when_the_request_is_moved(make_probe, lines, tick):
    request_halt(lines, 2)
    probe = make_probe()
    assert len(train(probe)) == 2
    request_halt(lines, 500)
    tick()
    assert train(probe) == []
    probe.close()
    assert [halt["at_step"] for halt in lines.events("halt")] == [2]


def test_a_loop_without_data_checks_halted(make_probe, lines):
    request_halt(lines, 3)
    with make_probe() as probe:
        while not probe.halted:
            train_one(probe)
    assert len(lines.steps()) == 3
    assert len(lines.events("halt")) == 1


def test_a_loop_that_never_checks_is_not_halted(make_probe, lines):
    request_halt(lines, 3)
    with make_probe() as probe:
        for _ in range(5):
            train_one(probe)
    assert [event["kind"] for event in lines.events()] == ["start", *["step"] * 5, "stop"]
    assert not probe.halted


def test_ranks_that_write_no_steps_are_halted_too(make_probe, lines):
    request_halt(lines, 3)
    with make_probe(rank=1, rank_scope="rank0") as probe:
        assert len(train(probe)) == 3
    assert [event["kind"] for event in lines.events(rank=1)] == ["start", "span", "halt", "stop"]


def test_the_thread_notices_it_and_writes_the_event_before_the_end(lines):
    probe = Probe(lines.run_dir, heartbeat_s=0.01)
    for batch in probe.data(range(10_000_000)):
        with probe.step():
            if batch == 20:
                request_halt(lines, 30)
                wait_until(lambda: "halting at step 30" in lines.heartbeats()[-1]["msg"])
    wait_until(lambda: [halt["step"] for halt in lines.events("halt")] == [29])
    probe.close()
    assert lines.events()[-1]["kind"] == "stop"


@pytest.fixture
def callback(lines, monkeypatch):
    """The Trainer's callback, with nothing of transformers but the class it comes from."""
    transformers = ModuleType("transformers")
    transformers.TrainerCallback = object
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.delitem(sys.modules, "seatrial.probe.hf", raising=False)
    from seatrial.probe.hf import SeatrialCallback

    # Not by monkeypatch, which would put this half of a module back for others to find.
    del sys.modules["seatrial.probe.hf"]
    return SeatrialCallback(lines.run_dir)


@pytest.mark.parametrize(("at_step", "steps", "halts"), [(0, 1, 1), (3, 3, 1), (5, 5, 0)])
def test_the_trainer_is_stopped_unless_it_stops_anyway(callback, lines, at_step, steps, halts):
    request_halt(lines, at_step)
    args = SimpleNamespace(train_batch_size=4, gradient_accumulation_steps=1)
    control = SimpleNamespace(should_training_stop=False, should_evaluate=False, should_save=False)
    callback.on_train_begin(args, SimpleNamespace(global_step=0), control)
    for number in range(1, 6):
        callback.on_step_begin(args, None, control)
        control.should_training_stop = number == 5
        callback.on_step_end(args, None, control)
        if control.should_training_stop:
            break
    callback.on_train_end(args, None, control)
    assert len(lines.steps()) == steps
    assert [event["step"] for event in lines.events("halt")] == [steps - 1] * halts
    assert lines.events()[-1]["kind"] == "stop"


@pytest.fixture
def tick(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What the heartbeat's thread of the newest probe does twice a second."""
    threads: list[HeartbeatThread] = []

    class Recorded(HeartbeatThread):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            threads.append(self)

    monkeypatch.setattr("seatrial.probe.writer.HeartbeatThread", Recorded)
    return lambda: threads[-1].tick()


def train_one(probe: Probe) -> None:
    with probe.step():
        pass
