"""A loop with the probe in it: what is written for steps, phases, pauses, losses and ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seatrial.probe.loop import Probe, _is_clean
from seatrial.probe.writer import FLUSH_HERE_AT_LINES
from seatrial.records.events import COMMON_FIELDS, STEP_FIELDS


def test_a_step_line_has_the_fields_of_the_contract_in_order(make_probe, clock, lines):
    with make_probe(run="mb16_r1", attempt=2, rank=3) as probe, probe.step(samples=16, tokens=2048):
        clock.pass_ms(52.1)
    (step,) = lines.steps(rank=3)
    assert tuple(step) == (*COMMON_FIELDS, *STEP_FIELDS)
    assert (step["v"], step["run"], step["attempt"], step["rank"]) == (1, "mb16_r1", 2, 3)
    assert (step["step"], step["samples"], step["tokens"]) == (0, 16, 2048)
    assert step["iter_ms"] == 52.1
    assert step["m"] == pytest.approx(clock.now_s)


def test_the_whole_loop_of_the_guide(make_probe, clock, lines):
    probe = make_probe()

    def loader():
        for batch in range(2):
            clock.pass_ms(5)
            yield batch

    for _ in probe.data(loader()):
        with probe.step(samples=8):
            for name, ms in (("preprocess", 1), ("fwd", 10), ("bwd", 20), ("step", 3)):
                with probe.phase(name):
                    clock.pass_ms(ms)
        probe.loss(2.5)
        clock.pass_ms(4)
    probe.close()
    first, second = lines.steps()
    phases = [first[name] for name in ("data_wait_ms", "preprocess_ms", "fwd_ms", "bwd_ms", "step_ms")]
    assert phases == pytest.approx([5, 1, 10, 20, 3])
    assert first["iter_ms"] == pytest.approx(34), "the first step counts from its own start"
    assert second["iter_ms"] == pytest.approx(43), "step end to step end: data wait and the rest of the loop count"
    assert [event["loss"] for event in (first, second)] == [2.5, 2.5]
    assert [event["kind"] for event in lines.events()] == ["start", "span", "step", "step", "stop"]


def test_phases_of_one_name_add_up_and_those_not_taken_are_null(make_probe, clock, lines):
    with make_probe() as probe, probe.step():
        for _ in range(3):
            with probe.phase("fwd"):
                clock.pass_ms(2)
    (step,) = lines.steps()
    assert step["fwd_ms"] == pytest.approx(6)
    assert (step["bwd_ms"], step["data_wait_ms"], step["samples"], step["loss"]) == (None, None, None, None)


def test_a_phase_between_steps_belongs_to_the_coming_step(make_probe, clock, lines):
    with make_probe() as probe:
        with probe.step():
            clock.pass_ms(1)
        with probe.phase("preprocess"):
            clock.pass_ms(7)
        with probe.step():
            clock.pass_ms(1)
    first, second = lines.steps()
    assert first["preprocess_ms"] is None
    assert second["preprocess_ms"] == pytest.approx(7)
    assert second["iter_ms"] == pytest.approx(8)


@pytest.mark.parametrize("active", [True, False])
def test_an_unknown_phase_is_refused_and_the_known_ones_named(make_probe, active):
    probe = make_probe() if active else Probe()
    with pytest.raises(ValueError, match=r"unknown phase 'forward': expected one of data_wait, preprocess, fwd, bwd, step"):
        probe.phase("forward")


def test_a_pause_between_steps_does_not_count(make_probe, clock, lines):
    with make_probe() as probe:
        with probe.step():
            clock.pass_ms(10)
        with probe.pause("eval"):
            clock.pass_ms(500)
        with probe.step():
            clock.pass_ms(10)
    assert [step["iter_ms"] for step in lines.steps()] == pytest.approx([10, 10])
    (pause,) = lines.events("pause")
    assert (pause["name"], pause["step"]) == ("eval", 1)
    assert pause["pause_ms"] == pytest.approx(500)


def test_a_pause_inside_a_phase_is_taken_out_of_step_and_phase(make_probe, clock, lines):
    with make_probe() as probe, probe.step():
        clock.pass_ms(1)
        with probe.phase("fwd"):
            clock.pass_ms(10)
            with probe.pause("compile"):
                clock.pass_ms(2000)
    (step,) = lines.steps()
    assert step["iter_ms"] == pytest.approx(11)
    assert step["fwd_ms"] == pytest.approx(10)
    assert lines.events("pause")[0]["step"] == 0


def test_pauses_inside_one_another_are_told_apart(make_probe, clock, lines):
    with make_probe() as probe, probe.step():
        clock.pass_ms(1)
        with probe.pause("eval"):
            clock.pass_ms(100)
            with probe.pause("checkpoint"):
                clock.pass_ms(30)
    told = {pause["name"]: pause["pause_ms"] for pause in lines.events("pause")}
    assert told == pytest.approx({"eval": 100, "checkpoint": 30})
    assert lines.steps()[0]["iter_ms"] == pytest.approx(1)


def test_a_step_that_raised_is_no_step_and_the_exception_is_the_same(make_probe, clock, lines):
    probe = make_probe()
    failure = RuntimeError("out of memory")
    with pytest.raises(RuntimeError) as raised, probe.step(), probe.phase("fwd"):
        clock.pass_ms(9)
        raise failure
    assert raised.value is failure
    with probe.step(samples=4), probe.phase("fwd"):
        clock.pass_ms(5)
    probe.close()
    (step,) = lines.steps()
    assert (step["step"], step["samples"]) == (0, 4)
    assert step["fwd_ms"] == pytest.approx(5), "what the failed step took in its phases is dropped"
    assert step["iter_ms"] == pytest.approx(14), "its time was spent all the same"


def test_a_loss_inside_a_step_is_that_step_s_and_after_it_the_ended_one_s(make_probe, lines):
    with make_probe() as probe:
        with probe.step():
            probe.loss(3)
        with probe.step():
            pass
        probe.loss(2.0)
        with probe.step():
            pass
    assert [step["loss"] for step in lines.steps()] == [3.0, 2.0, None]


def test_a_loss_that_is_not_finite_is_a_word_and_the_heartbeat_says_since_when(make_probe, lines):
    with make_probe() as probe:
        for loss in (1.0, float("nan"), float("inf"), float("-inf")):
            with probe.step():
                probe.loss(loss)
    assert [step["loss"] for step in lines.steps()] == [1.0, "nan", "inf", "-inf"]
    assert lines.heartbeats()[-1]["msg"] == "done; loss is not finite since step 1"


def test_samples_may_be_set_inside_the_step_and_odd_ones_never_spoil_a_line(make_probe, lines):
    with make_probe() as probe:
        for samples in (7, 2.5, "many", float("nan")):
            with probe.step() as step:
                step.samples = samples
    assert [step["samples"] for step in lines.steps()] == [7, 2.5, None, None]


def test_a_run_name_with_quotes_and_percent_signs_is_kept(make_probe, lines):
    with make_probe(run='100%s "best"') as probe, probe.step():
        pass
    assert {event["run"] for event in lines.events()} == {'100%s "best"'}


def test_effective_settings_and_memory_are_events(make_probe, lines):
    with make_probe() as probe:
        probe.effective("precision", requested="auto", effective="bf16", reason="cc 9.0")
        probe.effective("folder", requested=Path("a"), effective=float("inf"))
        probe.memory()
    precision, folder = lines.events("effective")
    assert tuple(precision) == (*COMMON_FIELDS, "setting", "requested", "effective", "reason")
    assert (precision["requested"], precision["effective"], precision["reason"]) == ("auto", "bf16", "cc 9.0")
    assert (folder["requested"], folder["effective"]) == ("a", None)
    (memory,) = lines.events("memory")
    assert tuple(memory) == (*COMMON_FIELDS, "step", "allocated_mib", "reserved_mib", "peak_mib", "rss_mib")
    assert memory["step"] is None, "no step has ended yet"
    assert memory["rss_mib"] > 1


def test_start_and_stop_frame_the_events(make_probe, lines):
    with make_probe(world_size=4) as probe, probe.step():
        pass
    start, stop = lines.events()[0], lines.events()[-1]
    assert tuple(start) == (*COMMON_FIELDS, "pid", "host", "world_size", "launched_by", "signal", "process_t", "local_rank", "gpu")
    assert (start["kind"], start["pid"], start["world_size"], start["signal"]) == ("start", os.getpid(), 4, "USR2")
    assert (stop["kind"], stop["step"], stop["steps"]) == ("stop", 0, 1)


def test_a_with_block_left_by_an_exception_writes_no_stop(make_probe, lines):
    with pytest.raises(KeyError), make_probe() as probe:
        with probe.step():
            pass
        raise KeyError("batch")
    assert [event["kind"] for event in lines.events()] == ["start", "step"]
    assert lines.heartbeats()[-1]["msg"] == "ended without reaching its end"


def test_close_in_a_finally_knows_that_an_exception_is_on_its_way(make_probe, lines):
    probe = make_probe()
    with pytest.raises(ValueError, match="bad batch"):
        try:
            raise ValueError("bad batch")
        finally:
            probe.close()
    assert lines.events("stop") == []


def test_close_twice_is_one_stop_and_later_calls_are_silent(make_probe, lines):
    probe = make_probe()
    probe.close()
    probe.close()
    with probe.step(), probe.phase("fwd"), probe.pause("eval"):
        probe.loss(1.0)
    (stop,) = lines.events("stop")
    assert (stop["step"], stop["steps"]) == (None, 0)
    assert lines.steps() == []


def test_a_figure_is_told_with_its_unit_and_n(make_probe, lines):
    with make_probe() as probe:
        probe.figure("ttft_p99_ms", 310, unit="ms", n=500)
        probe.figure("score", float("nan"))
    told = [(event["name"], event["value"], event["unit"], event["n"]) for event in lines.events("figure")]
    assert told == [("ttft_p99_ms", 310.0, "ms", 500), ("score", None, "", None)]


@pytest.mark.parametrize("name", ["", "p99 ms", "p99-ms", "größe", "x" * 101])
def test_a_figure_without_a_plain_name_is_refused(make_probe, name):
    with pytest.raises(ValueError, match="expected up to 100 letters, digits and _"):
        make_probe().figure(name, 1.0)


def test_a_silent_probe_takes_figures_too(monkeypatch):
    monkeypatch.delenv("SEATRIAL_RUN_DIR", raising=False)
    Probe().figure("score", 1.0)


def test_rank0_scope_keeps_other_ranks_to_start_stop_and_heartbeats(make_probe, lines):
    with make_probe(rank=1, rank_scope="rank0") as probe:
        with probe.step():
            pass
        with probe.pause("eval"):
            pass
        probe.memory()
    assert [event["kind"] for event in lines.events(rank=1)] == ["start", "stop"]
    assert lines.heartbeats(rank=1)[-1]["step"] == 0


def test_a_long_buffer_is_written_by_the_loop_itself(make_probe, lines):
    probe = make_probe()
    for _ in range(FLUSH_HERE_AT_LINES + 10):
        with probe.step():
            pass
    assert len(lines.steps()) >= FLUSH_HERE_AT_LINES - 1
    probe.close()
    assert [step["step"] for step in lines.steps()] == list(range(FLUSH_HERE_AT_LINES + 10))


def test_data_passes_length_attributes_and_errors_through(make_probe, clock):
    class Loader(list):
        sampler = "mine"

    probe = make_probe()
    timed = probe.data(Loader([1, 2, 3]))
    assert (len(timed), timed.sampler, list(timed), list(timed)) == (3, "mine", [1, 2, 3], [1, 2, 3])
    with pytest.raises(TypeError):
        len(probe.data(iter([1])))
    with pytest.raises(ZeroDivisionError):
        list(probe.data(1 // n for n in (1, 0)))


def test_an_endless_loader_can_be_left(make_probe, lines):
    def endless():
        while True:
            yield 1

    with make_probe() as probe:
        for count, _ in enumerate(probe.data(endless())):
            if count == 3:
                break
            with probe.step():
                pass
    assert len(lines.steps()) == 3


def test_without_a_folder_the_probe_is_silent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Probe() as probe:
        loader = [1, 2]
        assert probe.data(loader) is loader
        assert not probe.active
        for _ in probe.data(loader):
            with probe.step(samples=1), probe.phase("fwd"):
                pass
            probe.loss(object())
        with probe.pause("eval"):
            probe.memory()
            probe.effective("a", requested=1, effective=2)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_alone_makes_it_write(lines, monkeypatch):
    monkeypatch.setenv("SEATRIAL_RUN_DIR", str(lines.run_dir))
    monkeypatch.setenv("SEATRIAL_RUN", "mb8_r1")
    monkeypatch.setenv("SEATRIAL_ATTEMPT", "3")
    monkeypatch.setenv("RANK", "2")
    with Probe(heartbeat_s=None) as probe, probe.step():
        pass
    assert {(event["run"], event["attempt"], event["rank"]) for event in lines.events(rank=2)} == {("mb8_r1", 3, 2)}


@pytest.mark.parametrize(
    ("error", "clean"),
    [
        (None, True),
        (SystemExit(), True),
        (SystemExit(0), True),
        (SystemExit(1), False),
        (SystemExit("no data"), False),
        (KeyboardInterrupt(), False),
        (RuntimeError("x"), False),
    ],
)
def test_a_script_that_exits_with_0_ended_well(error: BaseException | None, clean: bool) -> None:
    assert _is_clean(error) is clean


def test_a_silent_probe_takes_every_call_and_knows_nothing() -> None:
    probe = Probe()
    loader = [1, 2]
    assert probe.data(loader) is loader
    with probe, probe.startup("model"), probe.step(samples=1) as step, probe.phase("fwd"), probe.pause("anything"):
        step.samples = 3
    probe.resume_at(7)
    probe.loss(1.0)
    probe.memory()
    probe.effective("precision", requested="bf16", effective="fp16")
    probe.figure("bleu", 31.4)
    assert (probe.active, probe.halted, probe.recent()) == (False, False, ())
    with pytest.raises(ValueError, match="unknown phase 'forward': expected one of"):
        probe.phase("forward")
    with pytest.raises(ValueError, match=r"unknown part of the start-up 'modl': did you mean 'model'\?"):
        probe.startup("modl")
