"""Parts of the start-up: what is told, under which name, and that no moment is told twice."""

from __future__ import annotations

import time

import pytest

from seatrial.probe import Probe
from seatrial.probe.identity import process_t


def told(lines) -> list[tuple[str, float]]:
    return [(span["name"], span["span_ms"]) for span in lines.events("span")]


def test_what_lies_inside_another_part_is_taken_out_of_it(make_probe, clock, lines):
    with make_probe() as probe, probe.startup("model"):
        clock.pass_ms(100)
        with probe.startup("process_group"):
            clock.pass_ms(30)
        with probe.pause("compile"):
            clock.pass_ms(7)
        clock.pass_ms(1)
    assert told(lines) == [("process_group", 30.0), ("compile", 7.0), ("model", 101.0)]


def test_a_part_inside_a_compile_pause_is_told_once(make_probe, clock, lines):
    with make_probe() as probe, probe.pause("compile"):
        with probe.startup("model"):
            clock.pass_ms(40)
        clock.pass_ms(2)
    assert told(lines) == [("model", 40.0), ("compile", 2.0)]
    assert [(pause["name"], pause["pause_ms"]) for pause in lines.events("pause")] == [("compile", 42.0)]


def test_waiting_for_the_first_batch_is_data_and_later_waits_are_not(make_probe, clock, lines):
    def loader():
        for batch in range(2):
            clock.pass_ms(5)
            yield batch

    with make_probe() as probe:
        with probe.startup("data"):
            clock.pass_ms(20)
        for _ in range(2):
            for _ in probe.data(loader()):
                with probe.step():
                    clock.pass_ms(1)
    assert told(lines) == [("data", 20.0), ("data", 5.0)]


def test_a_compile_pause_after_the_first_step_is_no_part_of_the_start_up(make_probe, clock, lines):
    with make_probe() as probe:
        with probe.step():
            clock.pass_ms(1)
        with probe.pause("compile"):
            clock.pass_ms(9)
    assert told(lines) == []


def test_heartbeats_say_which_part_is_under_way(lines):
    with Probe(lines.run_dir, heartbeat_s=None) as probe:
        with probe.startup("model"):
            probe._writer._heart.beat("beat")
        probe._writer._heart.beat("beat")
    assert [beat["phase"] for beat in lines.heartbeats()] == ["start", "startup:model", "start", "done"]


def test_a_workload_can_tell_how_long_it_tokenised(make_probe, clock, lines):
    with make_probe() as probe, probe.startup("data"):
        clock.pass_ms(3)
        with probe.startup("tokenise"):
            clock.pass_ms(40)
    assert told(lines) == [("tokenise", 40.0), ("data", 3.0)]


@pytest.mark.parametrize(("name", "remedy"), [("modell", "did you mean 'model'?"), ("xyz", "expected one of process_group, model, data")])
def test_an_unknown_name_is_refused_also_by_a_silent_probe(name, remedy):
    with pytest.raises(ValueError, match="unknown part of the start-up") as refused:
        Probe().startup(name)
    assert remedy in str(refused.value)


def test_a_silent_probe_tells_nothing_and_knows_no_steps():
    probe = Probe()
    with probe.startup("model"), probe.step():
        pass
    assert probe.recent() == ()


def test_recent_holds_the_newest_steps_with_their_phases(make_probe, clock, monkeypatch):
    monkeypatch.setenv("SEATRIAL_TIMING_WINDOW", "3")
    probe = make_probe()
    for number in range(5):
        with probe.step(), probe.phase("fwd"):
            clock.pass_ms(10 + number)
    assert [(step.step, round(step.iter_ms), round(step.phases_ms[2])) for step in probe.recent()] == [
        (2, 12, 12),
        (3, 13, 13),
        (4, 14, 14),
    ]


def test_a_window_below_one_is_refused(make_probe, monkeypatch):
    monkeypatch.setenv("SEATRIAL_TIMING_WINDOW", "0")
    with pytest.raises(ValueError, match="the timing window is 0"):
        make_probe()


def test_this_process_began_before_now_and_not_long_ago(make_probe, lines):
    make_probe()
    (start,) = lines.events("start")
    assert 0 <= time.time() - start["process_t"] < 3600


def test_the_age_of_a_process_is_null_where_the_system_does_not_tell_it(tmp_path):
    assert process_t(tmp_path / "none") is None
    odd = tmp_path / "stat"
    odd.write_text("12 (a ) b) R 1 2")
    assert process_t(odd) is None
