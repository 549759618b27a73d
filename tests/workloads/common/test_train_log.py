"""Lines of train.log, in stage 1's formats."""

from __future__ import annotations

import math
import re
import time

import polars as pl
import pytest

from seatrial.analyse.step_times import STAGE1_ITER, stage1_iter_ms, timing_points
from seatrial.collect.event_steps import STEP_SCHEMA
from seatrial.collect.events import read_block
from seatrial.collect.logs.launcher_log import read_stage1_lines, stamped_lines
from seatrial.core.log_lines import LOG_FORMATS, compile_patterns, line_values
from seatrial.core.paths import AttemptPaths
from seatrial.probe import Probe, StepRecord
from seatrial.records.eta import EtaEstimator
from seatrial_workloads.common.train_log import LogOptions, TimingLines, TrainLog, is_due, is_logged, log_options_from, quantile


def test_rank_0_logs_the_seed_s_line_to_stdout_and_train_log(tmp_path, capsys):
    with TrainLog(tmp_path / "run", rank=0, wall=lambda: 1794713095.1939) as lines:
        lines.step(50, 3.27104)
    first, line = capsys.readouterr().out.splitlines()
    assert first.endswith(f" - seatrial - INFO - Writing to {tmp_path / 'run'}")
    assert re.fullmatch(r"2026-11-1\d \d\d:\d\d:55,193 - seatrial - INFO - Step 50: Loss 3\.2710", line)
    assert AttemptPaths(tmp_path / "run").train_log.read_text().splitlines() == [first, line]
    assert line_values(line, compile_patterns(LOG_FORMATS["seed"].lines)) == {"step": 50.0, "loss": 3.271}


def test_other_ranks_are_silent(tmp_path, capsys):
    with TrainLog(tmp_path / "run", rank=1) as lines:
        lines.step(1, 1.0)
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "run").exists()


def test_a_second_run_in_the_folder_appends_to_the_log(tmp_path):
    for _ in range(2):
        with TrainLog(tmp_path, rank=0) as lines:
            lines.info("hello")
    assert AttemptPaths(tmp_path).train_log.read_text().count("hello") == 2


GOLDEN = """\
2026-11-15 03:24:55,000 - seatrial - INFO - Writing to {run_dir}
2026-11-15 03:24:55,040 - seatrial - INFO - Step 0: Loss 4.0000
2026-11-15 03:24:55,040 - seatrial - INFO - Timing(window=3): data_wait_ms:p50=5.00 p90=5.00 | preprocess_ms:p50=nan p90=nan | \
fwd_ms:p50=10.00 p90=10.00 | bwd_ms:p50=20.00 p90=20.00 | step_ms:p50=5.00 p90=5.00 | iter_ms:p50=40.00 p90=40.00
2026-11-15 03:24:55,040 - seatrial - INFO - TimingRank step=0 rank=0 loss=4.0000 data_wait=5.00 preprocess=nan fwd=10.00 bwd=20.00 \
step=5.00 iter=40.00
2026-11-15 03:24:55,640 - seatrial - INFO - Step 15: Loss 4.0000
2026-11-15 03:24:55,640 - seatrial - INFO - Timing(window=3): data_wait_ms:p50=5.00 p90=5.00 | preprocess_ms:p50=nan p90=nan | \
fwd_ms:p50=10.00 p90=10.00 | bwd_ms:p50=20.00 p90=20.00 | step_ms:p50=5.00 p90=5.00 | iter_ms:p50=40.00 p90=40.00
2026-11-15 03:24:55,640 - seatrial - INFO - TimingETA step=15 remain_steps=15 eta_sec=0.6 eta_hms=00:00:01 mode=rank0 \
basis_iter_ms=40.00 samples={samples}
2026-11-15 03:24:55,640 - seatrial - INFO - TimingRank step=15 rank=0 loss=4.0000 data_wait=5.00 preprocess=nan fwd=10.00 bwd=20.00 \
step=5.00 iter=40.00
"""
# 2026-11-15 03:24:55 UTC.
START_T = 1794713095.0


class Clock:
    """Seconds, advanced by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wall(self) -> float:
        # Half a microsecond on, so that a sum of tenths is not cut to the millisecond before.
        return START_T + self.now_s + 5e-7


@pytest.fixture
def clock(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SEATRIAL_RUN_DIR", "SEATRIAL_TIMING_WINDOW", "SEATRIAL_RANK_SCOPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield Clock()
    monkeypatch.undo()
    time.tzset()


def steps_ms(number: int) -> dict[str, float]:
    """Phases of a step, each different from its neighbours'."""
    return {"data_wait": 3.0 + number % 5, "fwd": 10.0 + number % 7, "bwd": 20.0 + (number * 3) % 11, "step": 5.0 + number % 2}


def one_step(probe: Probe, clock: Clock, phases: dict[str, float]) -> None:
    with probe.phase("data_wait"):
        clock.now_s += phases["data_wait"] / 1000.0
    with probe.step():
        for name in ("fwd", "bwd", "step"):
            with probe.phase(name):
                clock.now_s += phases[name] / 1000.0


def test_the_whole_text(tmp_path, clock, monkeypatch, capsys):
    monkeypatch.setenv("SEATRIAL_TIMING_WINDOW", "20")
    run_dir = tmp_path / "run"
    probe = Probe(run_dir, heartbeat_s=None, monotonic=clock, wall=clock.wall)
    timing = TimingLines(0, 31, probe.recent, options=LogOptions(window=3, rank_scope="all"))
    eta = EtaEstimator(31, 10)
    with probe, TrainLog(run_dir, 0, timing, wall=clock.wall) as lines:
        for step in range(16):
            one_step(probe, clock, {"data_wait": 5.0, "fwd": 10.0, "bwd": 20.0, "step": 5.0})
            eta.add(step, clock.now_s)
            if step % 15 == 0:
                lines.step(step, 4.0)
    text = GOLDEN.format(run_dir=run_dir, samples=eta.estimate().samples)
    assert (run_dir / "train.log").read_text() == text
    assert capsys.readouterr().out == text


def test_log_and_events_have_the_same_timing_points(tmp_path, clock):
    window, log_every = 7, 5
    probe = Probe(tmp_path, heartbeat_s=None, monotonic=clock, wall=clock.wall)
    with probe, TrainLog(tmp_path, 0, TimingLines(0, 51, probe.recent, options=LogOptions(window=window, eta_mode="off"))) as lines:
        for step in range(51):
            one_step(probe, clock, steps_ms(step))
            if step % log_every == 0:
                lines.step(step, 1.0)
    table = read_block((tmp_path / "events_rank0.jsonl").read_bytes()).filter(pl.col("kind") == "step").with_columns(span=pl.lit(1))
    computed = timing_points(table.select(list(STEP_SCHEMA)).with_columns(stage1_iter_ms().alias(STAGE1_ITER)), log_every, window)
    logged = read_stage1_lines(list(stamped_lines(tmp_path / "train.log", []))).points
    assert [point.step for point in logged] == [point.step for point in computed] == list(range(0, 51, log_every))
    for ours, theirs in zip(computed, logged, strict=True):
        known = {name: value for name, value in ours.values.items() if value is not None}
        assert len(known) == 10, "preprocess was never timed"
        assert theirs.values == pytest.approx(known, abs=0.0051)


def test_steps_without_phases_do_not_count():
    probe_steps = [record(0, [1.0, None, 10.0, 20.0, 5.0]), record(1, [None] * 5), record(2, [2.0, None, None, None, None])]
    line, rank_line = TimingLines(0, 10, lambda: probe_steps, options=LogOptions(rank_scope="all", eta_mode="off")).lines_of_step(
        2, math.nan
    )
    assert line.endswith("iter_ms:p50=36.00 p90=36.00")
    without = TimingLines(0, 10, lambda: probe_steps[1:], options=LogOptions(eta_mode="off"))
    assert without.lines_of_step(2, 1.0) == [], "a line of nan says nothing"
    assert rank_line == "TimingRank step=2 rank=0 loss=nan data_wait=nan preprocess=nan fwd=nan bwd=nan step=nan iter=nan"


def record(step, phases_ms):
    return StepRecord(step, START_T + step, float(step), 1000.0, None, None, phases_ms)


def test_no_eta_before_enough_steps_or_when_off():
    steps = [record(step, [1.0] * 5) for step in range(8)]
    waiting = TimingLines(0, 20, lambda: steps, options=LogOptions(eta_min_samples=12))
    assert [line.split(" ")[0] for line in waiting.lines_of_step(7, 1.0)] == ["Timing(window=100):"]
    steps += [record(step, [1.0] * 5) for step in range(8, 16)]
    assert [line.split(" ")[0] for line in waiting.lines_of_step(15, 1.0)] == ["Timing(window=100):", "TimingETA"]
    off = TimingLines(0, 20, lambda: steps, options=LogOptions(eta_mode="off"))
    assert len(off.lines_of_step(15, 1.0)) == 1


def test_global_max_uses_the_slowest_rank_in_a_collective_call():
    steps, calls = [record(step, [1.0] * 5) for step in range(15)], []

    def largest(values):
        calls.append(values)
        return [99.0, 1234.5]

    choices = LogOptions(eta_mode="global_max")
    (_, eta) = TimingLines(0, 20, lambda: steps, largest, choices).lines_of_step(14, 1.0)
    assert "eta_sec=99.0 eta_hms=00:01:39 mode=global_max basis_iter_ms=1234.50 samples=" in eta
    assert TimingLines(1, 20, lambda: steps[:3], largest, choices).lines_of_step(2, 1.0) == []
    assert calls[1] == [0.0, 0.0], "a rank without an estimate takes part too"


@pytest.mark.parametrize(("rank", "rank_scope"), [(0, "all"), (1, "rank0")])
def test_a_rank_without_a_step_takes_part_and_logs_nothing(rank, rank_scope):
    steps, calls = [], []

    def largest(values):
        calls.append(values)
        return values

    lines = TimingLines(rank, 20, lambda: steps, largest, LogOptions(eta_mode="global_max", rank_scope=rank_scope))
    assert lines.lines_of_step(0, 1.0) == []
    assert calls == [[0.0, 0.0]]
    steps += [record(step, [1.0] * 5) for step in range(15)]
    lines.lines_of_step(14, 1.0)
    assert len(calls) == 2 and calls[1][1] > 0


def test_other_ranks_log_only_with_rank_scope_all():
    steps = [record(0, [1.0] * 5)]
    assert TimingLines(1, 20, lambda: steps, options=LogOptions()).lines_of_step(0, 1.0) == []
    (line,) = TimingLines(1, 20, lambda: steps, options=LogOptions(rank_scope="all")).lines_of_step(0, 2.5)
    assert line == "TimingRank step=0 rank=1 loss=2.5000 data_wait=1.00 preprocess=1.00 fwd=1.00 bwd=1.00 step=1.00 iter=5.00"


def test_options_come_from_the_environment():
    assert log_options_from({}) == LogOptions(window=100, eta_mode="rank0", eta_min_samples=10, rank_scope="rank0")
    env = {"SEATRIAL_TIMING_WINDOW": "50", "SEATRIAL_ETA_MODE": "off", "SEATRIAL_ETA_MIN_SAMPLES": "3", "SEATRIAL_RANK_SCOPE": "all"}
    assert log_options_from(env) == LogOptions(window=50, eta_mode="off", eta_min_samples=3, rank_scope="all")
    with pytest.raises(ValueError, match="the ETA mode is 'max'; expected one of rank0, global_max, off"):
        log_options_from({"SEATRIAL_ETA_MODE": "max"})
    with pytest.raises(ValueError, match="SEATRIAL_TIMING_WINDOW is 'x'"):
        log_options_from({"SEATRIAL_TIMING_WINDOW": "x"})
    with pytest.raises(ValueError, match="the timing window is 0; expected 1 or more"):
        log_options_from({"SEATRIAL_TIMING_WINDOW": "0"})


@pytest.mark.parametrize(("values", "share", "expected"), [([1.0, 2.0], 0.5, 1.5), ([1.0, 2.0, 3.0], 0.9, 2.8), ([7.0], 0.9, 7.0)])
def test_percentiles_by_linear_interpolation(values, share, expected):
    assert quantile(values, share) == pytest.approx(expected)
    assert math.isnan(quantile([], share))


@pytest.mark.parametrize(("every", "due"), [(None, []), (1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (7, [])])
def test_periodic_actions_never_follow_step_0(every: int | None, due: list[int]) -> None:
    assert [step for step in range(7) if is_due(step, every)] == due


@pytest.mark.parametrize(("every", "logged"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3, 4]), (100, [0, 4])])
def test_the_first_every_nth_and_the_last_step_are_logged(every: int, logged: list[int]) -> None:
    assert [step for step in range(5) if is_logged(step, every, 5)] == logged
