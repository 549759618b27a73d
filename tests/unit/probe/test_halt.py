"""A run that is to end early: what counts as a request, and where the loop then ends."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seatrial.probe import Probe
from seatrial.probe.halt import MOST_BYTES, HaltFile
from tests.waiting import wait_until


def ask(lines, at_step: Any, attempt: Any = 1, **more: Any) -> None:
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
        '{"attempt": 2, "at_st',
        "null",
        "[]",
        "5",
        '"attempt"',
        "{}",
        '{"attempt": 2}',
        '{"at_step": 4}',
        '{"attempt": 1, "at_step": 4, "reason": "another attempt"}',
        '{"attempt": "2", "at_step": 4}',
        '{"attempt": 2, "at_step": -1}',
        '{"attempt": 2, "at_step": 4.5}',
        '{"attempt": 2, "at_step": true}',
        '{"attempt": 2, "at_step": NaN}',
        '{"attempt": 2, "at_step": null}',
        "[" * 20_000,
        "\udcff\udc80\x00",
        '{"attempt": 2, "at_step": 4, "reason": "' + "x" * MOST_BYTES + '"}',
    ],
)
def test_what_is_no_request_is_passed_over_and_a_request_after_it_is_seen(file, tmp_path, text):
    (tmp_path / "halt.json").write_bytes(text.encode(errors="surrogateescape"))
    assert file.look() is None
    assert file.look() is None
    (tmp_path / "halt.json").write_text('{"attempt": 2, "at_step": 40, "reason": "stalled"}')
    assert file.look().at_step == 40


def test_a_request_is_told_once_and_a_new_one_again(file, tmp_path):
    assert file.look() is None, "there is no file"
    for at_step in (7, 900):
        (tmp_path / "halt.json").write_text(json.dumps({"attempt": 2, "at_step": at_step}))
        request = file.look()
        assert (request.at_step, request.reason) == (at_step, "no reason given")
        assert file.look() is None
    (tmp_path / "halt.json").unlink()
    assert file.look() is None


def test_a_folder_in_its_place_stops_nobody(file, tmp_path):
    (tmp_path / "halt.json").mkdir()
    assert file.look() is None


@pytest.mark.parametrize(("at_step", "steps"), [(0, 0), (1, 1), (4, 4), (9, 9)])
def test_the_loop_ends_before_that_step_as_if_the_data_were_over(make_probe, lines, at_step, steps, caplog):
    ask(lines, at_step)
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


@pytest.mark.parametrize("at_step", [11, 10**30])
def test_a_step_beyond_the_end_changes_nothing(make_probe, lines, at_step):
    ask(lines, at_step)
    with make_probe() as probe:
        assert len(train(probe)) == 10
        assert not probe.halted
    assert not probe.halted
    assert lines.events("halt") == []
    assert lines.heartbeats()[-1]["msg"] == "done"


def test_a_stale_file_of_another_attempt_stops_nobody(make_probe, lines):
    ask(lines, 3, attempt=1)
    with make_probe(attempt=2) as probe:
        assert len(train(probe)) == 10
    assert lines.events("halt") == []


def test_a_rank_that_is_already_beyond_ends_at_once_and_without_asking_for_more_data(make_probe, lines):
    asked = []

    def loader():
        for batch in range(10):
            asked.append(batch)
            yield batch

    probe = make_probe()
    for batch in probe.data(loader()):
        with probe.step():
            if batch == 5:
                ask(lines, 2)
                tick(probe)
    probe.close()
    assert len(lines.steps()) == 6
    assert asked == [0, 1, 2, 3, 4, 5]
    (halt,) = lines.events("halt")
    assert (halt["step"], halt["at_step"]) == (5, 2)


def test_a_request_that_comes_while_waiting_for_data_is_heard_before_the_step(make_probe, lines):
    def loader():
        for batch in range(10):
            if batch == 3:
                ask(lines, 3)
                tick(probe)
            yield batch

    probe = make_probe()
    assert len([train_one(probe) for _ in probe.data(loader())]) == 3
    probe.close()
    assert lines.events("halt")[0]["step"] == 2


def test_a_torn_file_is_read_when_it_is_whole(make_probe, lines, caplog):
    probe = make_probe()
    whole = json.dumps({"attempt": 1, "at_step": 4, "reason": "stalled"})
    seen = []
    for batch in probe.data(range(10)):
        with probe.step():
            (lines.run_dir / "halt.json").write_text(whole[: len(whole) * (batch + 1) // 3])
            tick(probe)
            seen.append(lines.heartbeats()[-1]["msg"])
    probe.close()
    assert caplog.text.count("is to end before step 4: stalled") == 1, "though the file was written once more"
    assert seen == ["beat", "step_end", "beat; halting at step 4", "beat; halting at step 4"]


def test_a_halted_loop_does_not_begin_again_when_the_request_is_moved(make_probe, lines):
    ask(lines, 2)
    probe = make_probe()
    assert len(train(probe)) == 2
    ask(lines, 500)
    tick(probe)
    assert train(probe) == []
    probe.close()
    assert [halt["at_step"] for halt in lines.events("halt")] == [2]


def test_a_loop_of_its_own_asks_whether_it_is_halted(make_probe, lines):
    ask(lines, 3)
    with make_probe() as probe:
        while not probe.halted:
            train_one(probe)
    assert len(lines.steps()) == 3
    assert len(lines.events("halt")) == 1


def test_a_loop_that_never_asks_is_not_said_to_have_been_halted(make_probe, lines):
    ask(lines, 3)
    with make_probe() as probe:
        for _ in range(5):
            train_one(probe)
    assert [event["kind"] for event in lines.events()] == ["start", *["step"] * 5, "stop"]
    assert not probe.halted


def test_ranks_that_write_no_steps_are_halted_too(make_probe, lines):
    ask(lines, 3)
    with make_probe(rank=1, rank_scope="rank0") as probe:
        assert len(train(probe)) == 3
    assert [event["kind"] for event in lines.events(rank=1)] == ["start", "span", "halt", "stop"]


def test_a_silent_probe_is_never_halted(lines, monkeypatch):
    ask(lines, 0)
    monkeypatch.chdir(lines.run_dir)
    with Probe() as probe:
        assert len(train(probe)) == 10
        assert not probe.halted


def test_a_loader_with_workers_is_dropped_in_the_middle_of_an_epoch(make_probe, lines):
    ended = []

    class Workers:
        def __init__(self) -> None:
            self.left = iter(range(10))

        def __next__(self) -> int:
            return next(self.left)

        def __del__(self) -> None:
            ended.append("workers")

    class Loader:
        def __iter__(self) -> Workers:
            return Workers()

    ask(lines, 2)
    with make_probe() as probe:
        timed = probe.data(Loader())
        for _ in timed:
            train_one(probe)
            assert ended == []
        assert ended == ["workers"], "nobody holds the iterator any more, though the loader is still there"


def test_the_thread_hears_of_it_and_writes_the_event_before_the_end(lines):
    probe = Probe(lines.run_dir, heartbeat_s=0.01)
    for batch in probe.data(range(10_000_000)):
        with probe.step():
            if batch == 20:
                ask(lines, 30)
                wait_until(lambda: "halting at step 30" in lines.heartbeats()[-1]["msg"])
    assert probe._timeline.ended_steps == 30
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


@pytest.mark.parametrize(("at_step", "steps", "halts"), [(0, 1, 1), (3, 3, 1), (5, 5, 0), (9, 5, 0)])
def test_the_trainer_is_asked_to_stop_unless_it_does_so_anyhow(callback, lines, at_step, steps, halts):
    ask(lines, at_step)
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


def tick(probe: Probe) -> None:
    """What the heartbeat's thread does twice a second."""
    assert probe._writer is not None
    probe._writer._heart.tick()


def train_one(probe: Probe) -> None:
    with probe.step():
        pass
