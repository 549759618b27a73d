"""Causes of uneven steps: each named from what shows it, none of a healthy run, none of too little."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.uneven import uneven_causes
from seatrial.records.health import Straggler, StragglerVerdict, UnevenCause
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables
from tests.unit.analyse.factory import STARTED_T, pauses_of, steps_of, tables

COUNT = 300
WINDOW = Window(first_step=0, last_step=COUNT - 1, n=COUNT, warmup_steps=0)
FIRST_T = STARTED_T + 5.0
WINDOW_S = 30.0
CORES = 8


def noisy(seed: int, level: float, share: float, count: int = COUNT) -> np.ndarray:
    return level * (1 + share * np.random.default_rng(seed).standard_normal(count))


def healthy_steps(seed: int = 1, wait_ms: Any = None) -> StepTables:
    """Two ranks at 100 ms a step."""
    wait = noisy(seed, 0.5, 0.1) if wait_ms is None else np.asarray(wait_ms, dtype=float)
    times = noisy(seed + 1, 100.0, 0.01) + wait
    return tables(*(steps_of(times, rank=rank, data_wait_ms=wait) for rank in (0, 1)))


def host(count: int = 60, seed: int = 3, **columns: Any) -> pl.DataFrame:
    """A quiet host of eight processors."""
    data: dict[str, Any] = {
        "epoch_sec": FIRST_T + np.arange(count) * WINDOW_S / count,
        "load1": 2.0,
        "cpu_user_pct": noisy(seed, 25.0, 0.05, count),
        "cpu_system_pct": 3.0,
        "cpu_steal_pct": 0.2,
        "tree_cpu_pct": 205.0,
    }
    return pl.DataFrame({name: np.broadcast_to(np.asarray(value, dtype=float), count) for name, value in {**data, **columns}.items()})


def gpu_rows(index: int, count: int = 60, *, reasons: Any = None, **columns: Any) -> pl.DataFrame:
    data: dict[str, Any] = {
        "epoch_sec": FIRST_T + 0.02 * index + np.arange(count) * WINDOW_S / count,
        "gpu_index": index,
        "temp_c": 62.0,
        "util_gpu_pct": np.minimum(100.0, noisy(index, 97.0, 0.02, count)),
        "power_w": 520.0,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1980.0,
    }
    numbers = {name: np.broadcast_to(np.asarray(value, dtype=float), count) for name, value in {**data, **columns}.items()}
    return pl.DataFrame({**numbers, "throttle_reasons": pl.Series(reasons or [""] * count, dtype=pl.String)})


def gpus(*parts: pl.DataFrame) -> pl.DataFrame:
    return pl.concat(parts or (gpu_rows(0), gpu_rows(1))).sort("epoch_sec", maintain_order=True)


ACCOUNT = TelemetryAccount(gpu=SamplerAccount(interval_s=0.5), host=SamplerAccount(interval_s=0.5))


def causes(
    steps: StepTables | None = None,
    gpu: pl.DataFrame | None = None,
    on: pl.DataFrame | None = None,
    straggler: Straggler | None = None,
    cores: int | None = CORES,
    window: Window | None = WINDOW,
) -> dict[str, UnevenCause]:
    samples = TelemetryTables(gpu=gpus() if gpu is None else gpu, host=host() if on is None else on)
    times = (FIRST_T, FIRST_T + WINDOW_S) if window else (None, None)
    found = uneven_causes(steps or healthy_steps(), samples, ACCOUNT, window, *times, straggler, cores=cores)
    assert [cause.strength for cause in found] == sorted((cause.strength for cause in found), reverse=True)
    assert all(cause.n and cause.file and cause.window and 0 <= cause.strength <= 1 for cause in found)
    assert all(f"{cause.n}" in cause.text or cause.kind == "slow_rank" for cause in found)
    return {cause.kind: cause for cause in found}


@pytest.mark.parametrize("window", [WINDOW, None])
def test_a_healthy_run_has_no_cause(window: Window | None) -> None:
    assert causes(window=window) == {}


def test_nothing_sampled_is_no_cause_and_no_error() -> None:
    empty = TelemetryTables()
    assert uneven_causes(healthy_steps(), empty, None, WINDOW, None, None, None) == ()
    assert uneven_causes(tables(), empty, None, None, None, None, None) == ()
    bare = TelemetryTables(gpu=pl.DataFrame({"epoch_sec": [FIRST_T]}), host=pl.DataFrame({"epoch_sec": [FIRST_T]}))
    assert uneven_causes(tables(), bare, ACCOUNT, None, None, None, None, cores=2) == ()


def test_bursts_of_waiting_for_data_explain_slow_steps() -> None:
    wait = np.full(COUNT, 0.5)
    wait[10::20] += 80.0
    found = causes(healthy_steps(wait_ms=wait))["data_wait_bursts"]
    assert found.numbers["bursts"] == 15 and found.numbers["every_steps"] == 20 and found.n == COUNT
    assert found.numbers["explained_ratio"] == pytest.approx(1.0, abs=0.05)
    assert "15 of 300 steps (steps 0 to 299)" in found.text and "every 20 steps" in found.text and "num_workers" in found.text


def test_slow_steps_that_do_not_wait_for_data_are_no_bursts() -> None:
    times = noisy(5, 100.0, 0.01)
    times[::10] *= 4
    assert causes(tables(steps_of(times, data_wait_ms=np.full(COUNT, 3.0)))) == {}


def test_two_long_waits_or_too_few_steps_are_no_bursts() -> None:
    wait = np.full(COUNT, 0.5)
    wait[[40, 90]] = 400.0
    assert causes(healthy_steps(wait_ms=wait)) == {}
    short = np.full(15, 0.5)
    short[[3, 6, 9, 12]] = 200.0
    assert causes(tables(steps_of(100.0 + short, data_wait_ms=short))) == {}


def test_a_wait_before_a_pause_ends_is_the_pauses() -> None:
    wait = np.full(COUNT, 0.5)
    wait[10::20] += 80.0
    held = healthy_steps(wait_ms=wait)
    paused = pauses_of(*((0, int(step), "eval", 500.0) for step in range(10, COUNT, 20)))
    assert causes(tables(held.steps, pauses=paused, world_size=2)) == {}


def test_data_that_is_late_in_every_step() -> None:
    found = causes(healthy_steps(wait_ms=np.full(COUNT, 40.0)))
    assert list(found) == ["data_wait"]
    assert found["data_wait"].numbers["share"] == pytest.approx(40 / 140, abs=0.01)
    assert "n = 300" in found["data_wait"].text


def test_phases_taken_on_one_step_in_ten_are_enough() -> None:
    wait: list[float | None] = [None] * COUNT
    wait[::10] = [40.0] * (COUNT // 10)
    steps = tables(steps_of(noisy(1, 140.0, 0.01), data_wait_ms=wait))
    assert causes(steps)["data_wait"].n == COUNT // 10


def test_the_rank_that_holds_the_others_up() -> None:
    named = Straggler(
        verdict=StragglerVerdict.NAMED, reason="", rank=1, score=0.25, phase="data_wait", host="node7", gpu="1", held_up_ms=20.0, n=280
    )
    found = causes(straggler=named)["slow_rank"]
    assert "Rank 1 (GPU 1 on node7) takes 25% longer than the others in data_wait" in found.text and "storage of its host" in found.text
    assert found.strength == pytest.approx(0.2)
    assert causes(straggler=Straggler(verdict=StragglerVerdict.ABSTAINED, reason="ranks are missing")) == {}


def test_gaps_are_the_windows_own() -> None:
    late = host().filter(~pl.col("epoch_sec").is_between(FIRST_T + 10, FIRST_T + 16))
    found = causes(on=late)["telemetry_gaps"]
    assert found.numbers["gaps"] == 1 and found.file == "host_telemetry.csv" and "of 30 s were not looked at" in found.text
    before = host(80).with_columns(epoch_sec=pl.Series(FIRST_T - 20 + np.arange(80.0) * 50 / 79))
    assert causes(on=before.filter(~pl.col("epoch_sec").is_between(FIRST_T - 15, FIRST_T - 1))) == {}


def test_a_sampler_that_stopped_early_left_the_rest_unseen() -> None:
    assert causes(gpu=gpus().filter(pl.col("epoch_sec") < FIRST_T + 18))["telemetry_gaps"].file == "gpu_telemetry.csv"


def test_what_the_machine_did_before_the_first_step_is_not_the_steps() -> None:
    times = FIRST_T - 100 + np.arange(130.0)
    loaded_at_start = host(130, epoch_sec=times, cpu_user_pct=np.where(times < FIRST_T - 1, 97.0, 20.0))
    samples = TelemetryTables(host=loaded_at_start)
    steps = tables(steps_of(noisy(1, 100.0, 0.01)))
    assert uneven_causes(steps, samples, None, WINDOW, None, FIRST_T + 30, None, cores=CORES) == ()
    whole = uneven_causes(steps, samples, None, None, None, None, None, cores=CORES)
    assert [(cause.kind, cause.window) for cause in whole] == [("host_load", "the whole run")]


@pytest.mark.parametrize(
    ("host_name", "gpu", "start"), [("", "", "Rank 1 takes"), ("node7", "", "Rank 1 (node7) takes"), ("", "1", "Rank 1 (GPU 1) takes")]
)
def test_a_rank_is_told_with_as_much_of_its_place_as_is_known(host_name: str, gpu: str, start: str) -> None:
    named = Straggler(verdict=StragglerVerdict.NAMED, reason="", rank=1, score=0.25, phase="fwd", host=host_name, gpu=gpu, n=280)
    assert causes(straggler=named)["slow_rank"].text.startswith(start)
