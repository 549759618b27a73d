"""The probe in a loop: steps, phases, pauses, start-up spans, loss."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.probe import loop
from seatrial.probe.identity import process_t
from seatrial.probe.loop import MIB, Probe, read_memory_mib
from seatrial.probe.writer import FLUSH_HERE_AT_LINES
from seatrial.records.events import STEP_FIELDS

COMMON_FIELDS = ("v", "run", "attempt", "rank", "t", "m", "kind")
"""Every line begins with these."""


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


def test_phases_of_one_name_add_up_and_untimed_ones_are_null(make_probe, clock, lines):
    with make_probe() as probe, probe.step():
        for _ in range(3):
            with probe.phase("fwd"):
                clock.pass_ms(2)
    (step,) = lines.steps()
    assert step["fwd_ms"] == pytest.approx(6)
    assert (step["bwd_ms"], step["data_wait_ms"], step["samples"], step["loss"]) == (None, None, None, None)


def test_a_phase_between_steps_belongs_to_the_next_step(make_probe, clock, lines):
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


def test_an_unknown_phase_is_refused_and_the_known_ones_named(make_probe):
    with pytest.raises(ValueError, match=r"unknown phase 'forward': expected one of data_wait, preprocess, fwd, bwd, step"):
        make_probe().phase("forward")


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


def test_a_pause_inside_a_phase_is_subtracted_from_step_and_phase(make_probe, clock, lines):
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


def test_nested_pauses_are_reported_separately(make_probe, clock, lines):
    with make_probe() as probe, probe.step():
        clock.pass_ms(1)
        with probe.pause("eval"):
            clock.pass_ms(100)
            with probe.pause("checkpoint"):
                clock.pass_ms(30)
    pauses = {pause["name"]: pause["pause_ms"] for pause in lines.events("pause")}
    assert pauses == pytest.approx({"eval": 100, "checkpoint": 30})
    assert lines.steps()[0]["iter_ms"] == pytest.approx(1)


def test_a_step_that_raises_does_not_count_and_the_exception_is_the_same(make_probe, clock, lines):
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


def test_a_loss_belongs_to_the_open_step_else_to_the_ended_one(make_probe, lines):
    with make_probe() as probe:
        with probe.step():
            probe.loss(3)
        with probe.step():
            pass
        probe.loss(2.0)
        with probe.step():
            pass
    assert [step["loss"] for step in lines.steps()] == [3.0, 2.0, None]


def test_a_non_finite_loss_is_a_string_and_the_heartbeat_has_its_first_step(make_probe, lines):
    with make_probe() as probe:
        for loss in (1.0, float("nan"), float("inf"), float("-inf")):
            with probe.step():
                probe.loss(loss)
    assert [step["loss"] for step in lines.steps()] == [1.0, "nan", "inf", "-inf"]
    assert lines.heartbeats()[-1]["msg"] == "done; loss is not finite since step 1"


def test_samples_may_be_set_inside_the_step_and_invalid_ones_are_null(make_probe, lines):
    with make_probe() as probe:
        for samples in (7, 2.5, "many", float("nan")):
            with probe.step() as step:
                step.samples = samples
    assert [step["samples"] for step in lines.steps()] == [7, 2.5, None, None]


def test_a_run_name_with_quotes_and_percent_signs_is_kept(make_probe, lines):
    with make_probe(run='100%s "best"') as probe, probe.step():
        pass
    assert {event["run"] for event in lines.events()} == {'100%s "best"'}


def test_what_an_effective_setting_may_follow_is_in_its_event(make_probe, lines):
    with make_probe() as probe:
        probe.effective("graph", requested=True, effective=False, follows=("attn_impl", "precision"))
        probe.effective("dtype", requested="auto", effective="bf16", follows="attn_impl")
        probe.effective("tf32", requested=True, effective=True)
    assert [event.get("follows") for event in lines.events("effective")] == ["attn_impl,precision", "attn_impl", None]


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


def test_close_in_a_finally_notices_the_exception(make_probe, lines):
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


def test_a_figure_has_its_unit_and_n(make_probe, lines):
    with make_probe() as probe:
        probe.figure("ttft_p99_ms", 310, unit="ms", n=500)
        probe.figure("score", float("nan"))
    figures = [(event["name"], event["value"], event["unit"], event["n"]) for event in lines.events("figure")]
    assert figures == [("ttft_p99_ms", 310.0, "ms", 500), ("score", None, "", None)]


@pytest.mark.parametrize("name", ["", "p99 ms", "größe", "x" * 101])
def test_a_figure_without_a_plain_name_is_refused(make_probe, name):
    with pytest.raises(ValueError, match="expected up to 100 letters, digits and _"):
        make_probe().figure(name, 1.0)


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


def test_the_environment_alone_activates_it(lines, monkeypatch):
    monkeypatch.setenv("SEATRIAL_RUN_DIR", str(lines.run_dir))
    monkeypatch.setenv("SEATRIAL_RUN", "mb8_r1")
    monkeypatch.setenv("SEATRIAL_ATTEMPT", "3")
    monkeypatch.setenv("RANK", "2")
    with Probe(heartbeat_s=None) as probe, probe.step():
        pass
    assert {(event["run"], event["attempt"], event["rank"]) for event in lines.events(rank=2)} == {("mb8_r1", 3, 2)}


def test_a_silent_probe_takes_every_call() -> None:
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
    with pytest.raises(ValueError, match="unknown phase 'forward'"):
        probe.phase("forward")


def spans(lines) -> list[tuple[str, float]]:
    return [(span["name"], span["span_ms"]) for span in lines.events("span")]


def test_a_nested_part_is_subtracted(make_probe, clock, lines):
    with make_probe() as probe, probe.startup("model"):
        clock.pass_ms(100)
        with probe.startup("process_group"):
            clock.pass_ms(30)
        with probe.pause("compile"):
            clock.pass_ms(7)
        clock.pass_ms(1)
    assert spans(lines) == [("process_group", 30.0), ("compile", 7.0), ("model", 101.0)]


def test_a_part_inside_a_compile_pause_is_reported_once(make_probe, clock, lines):
    with make_probe() as probe, probe.pause("compile"):
        with probe.startup("model"):
            clock.pass_ms(40)
        clock.pass_ms(2)
    assert spans(lines) == [("model", 40.0), ("compile", 2.0)]
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
    assert spans(lines) == [("data", 20.0), ("data", 5.0)]


def test_a_compile_pause_after_the_first_step_is_no_part_of_the_start_up(make_probe, clock, lines):
    with make_probe() as probe:
        with probe.step():
            clock.pass_ms(1)
        with probe.pause("compile"):
            clock.pass_ms(9)
    assert spans(lines) == []


@pytest.mark.parametrize(("name", "remedy"), [("modell", "did you mean 'model'?"), ("xyz", "known: compile, data, model")])
def test_an_unknown_name_is_refused_also_by_a_silent_probe(name, remedy):
    with pytest.raises(ValueError, match="unknown part of the start-up") as refused:
        Probe().startup(name)
    assert remedy in str(refused.value)


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


def test_the_start_of_this_process(make_probe, lines):
    make_probe()
    (start,) = lines.events("start")
    assert 0 <= time.time() - start["process_t"] < 3600


def test_the_start_of_a_process_is_null_where_it_is_unknown(tmp_path):
    assert process_t(tmp_path / "none") is None
    odd = tmp_path / "stat"
    odd.write_text("12 (a ) b) R 1 2")
    assert process_t(odd) is None


def fake_torch(*, initialised: bool) -> Any:
    def refuse() -> int:
        raise AssertionError("CUDA is not initialised, and a query would initialise it")

    def returning(mib: float) -> Any:
        return (lambda: int(mib * MIB)) if initialised else refuse

    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        memory_allocated=returning(1.5),
        memory_reserved=returning(2),
        max_memory_allocated=returning(3),
    )
    return SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize("torch", [SimpleNamespace(), fake_torch(initialised=False)])
def test_cuda_that_is_not_initialised_is_left_alone(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert read_memory_mib()["allocated_mib"] is None


def test_memory_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(initialised=True))
    found = read_memory_mib()
    assert (found["allocated_mib"], found["reserved_mib"], found["peak_mib"]) == (1.5, 2.0, 3.0)


@pytest.mark.parametrize("content", [None, "12", "12 x"])
def test_unreadable_memory_of_the_process_is_null(content: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    statm = tmp_path / "statm"
    if content is not None:
        statm.write_text(content)
    monkeypatch.setattr(loop, "Path", lambda name: statm)
    assert read_memory_mib()["rss_mib"] is None
