"""Why steps are uneven: data, slow ranks and hosts, CPU contention, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.step_jitter import GAP_WEIGHT, MIN_INTERVALS, MIN_STEPS, data_causes, find_jitter_causes, gap_causes, host_causes
from seatrial.analyse.telemetry_summary import WindowSpan
from seatrial.records.attempt import StepTables
from seatrial.records.measure import JitterCause, Straggler, StragglerVerdict, Window
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables
from tests.unit.analyse.factory import STARTED_T, golden, pauses_of, steps_of, tables

SENTENCES = golden("step_jitter")

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
) -> dict[str, JitterCause]:
    samples = TelemetryTables(gpu=gpus() if gpu is None else gpu, host=host() if on is None else on)
    times = (FIRST_T, FIRST_T + WINDOW_S) if window else (None, None)
    found = find_jitter_causes(
        steps or healthy_steps(), samples, ACCOUNT, WindowSpan(first_t=times[0], last_t=times[1], window=window), straggler, cores=cores
    )
    assert [cause.strength for cause in found] == sorted((cause.strength for cause in found), reverse=True)
    assert all(cause.n and cause.file and cause.window and 0 <= cause.strength <= 1 for cause in found)
    assert all(f"{cause.n}" in cause.text or cause.kind == "slow_rank" for cause in found)
    return {cause.kind: cause for cause in found}


@pytest.mark.parametrize("window", [WINDOW, None])
def test_a_healthy_run_has_no_cause(window: Window | None) -> None:
    assert causes(window=window) == {}


def test_nothing_sampled_is_no_cause_and_no_error() -> None:
    empty = TelemetryTables()
    assert find_jitter_causes(healthy_steps(), empty, None, WindowSpan(window=WINDOW), None) == ()
    assert find_jitter_causes(tables(), empty, None, WindowSpan(), None) == ()
    bare = TelemetryTables(gpu=pl.DataFrame({"epoch_sec": [FIRST_T]}), host=pl.DataFrame({"epoch_sec": [FIRST_T]}))
    assert find_jitter_causes(tables(), bare, ACCOUNT, WindowSpan(), None, cores=2) == ()


def test_the_rank_that_holds_the_others_up() -> None:
    named = Straggler(
        verdict=StragglerVerdict.NAMED, reason="", rank=1, score=0.25, phase="data_wait", host="node7", gpu="1", held_up_ms=20.0, n=280
    )
    found = causes(straggler=named)["slow_rank"]
    assert found.text in SENTENCES
    assert found.strength == pytest.approx(0.2)
    assert causes(straggler=Straggler(verdict=StragglerVerdict.ABSTAINED, reason="ranks are missing")) == {}


def test_what_the_machine_did_before_the_first_step_is_not_the_steps() -> None:
    times = FIRST_T - 100 + np.arange(130.0)
    loaded_at_start = host(130, epoch_sec=times, cpu_user_pct=np.where(times < FIRST_T - 1, 97.0, 20.0))
    samples = TelemetryTables(host=loaded_at_start)
    steps = tables(steps_of(noisy(1, 100.0, 0.01)))
    assert find_jitter_causes(steps, samples, None, WindowSpan(last_t=FIRST_T + 30, window=WINDOW), None, cores=CORES) == ()
    whole = find_jitter_causes(steps, samples, None, WindowSpan(), None, cores=CORES)
    assert [(cause.kind, cause.window) for cause in whole] == [("host_load", "the whole run")]


@pytest.mark.parametrize(("host_name", "gpu"), [("", ""), ("node7", ""), ("", "1")])
def test_a_rank_is_named_with_as_much_of_its_place_as_is_known(host_name: str, gpu: str) -> None:
    named = Straggler(verdict=StragglerVerdict.NAMED, reason="", rank=1, score=0.25, phase="fwd", host=host_name, gpu=gpu, n=280)
    assert causes(straggler=named)["slow_rank"].text in SENTENCES


def waiting(waits_ms: Sequence[float], *, work_ms: float = 90.0, rank: int = 0) -> pl.DataFrame:
    return steps_of([work_ms + wait for wait in waits_ms], rank=rank, data_wait_ms=waits_ms)


def found_data_causes(
    *parts: pl.DataFrame, span: WindowSpan | None = None, pauses: pl.DataFrame | None = None, source: str = "events"
) -> dict[str, JitterCause]:
    return {cause.kind: cause for cause in data_causes(tables(*parts, pauses=pauses, source=source), span or WindowSpan())}


BURSTS = [100.0 if step % 10 == 9 else 10.0 for step in range(60)]


def test_bursts_are_reported_with_their_rhythm_and_their_cost() -> None:
    found = found_data_causes(waiting(BURSTS))["data_wait_bursts"]
    assert found.text in SENTENCES
    assert found.numbers == {
        "bursts": 6,
        "burst_ms": 90.0,
        "usual_wait_ms": 10.0,
        "explained_ratio": 1.0,
        "time_ratio": pytest.approx(540 / 6540),
        "every_steps": 10,
    }
    assert (found.file, found.n, found.strength) == ("events_rank*.jsonl", 60, 1.0)


def test_bursts_without_a_rhythm() -> None:
    waits = [100.0 if step in (3, 4, 20, 33, 58) else 10.0 for step in range(60)]
    found = found_data_causes(waiting(waits), source="log")["data_wait_bursts"]
    assert found.numbers["every_steps"] is None and "every" not in found.text and found.file == "launcher.log"


def test_one_or_two_long_waits_may_be_anything() -> None:
    assert found_data_causes(waiting([100.0 if step in (9, 19) else 10.0 for step in range(60)])) == {}
    assert "data_wait_bursts" in found_data_causes(waiting([100.0 if step in (9, 19, 29) else 10.0 for step in range(60)]))


def test_slow_steps_that_did_not_wait_are_not_the_datas() -> None:
    slow = [300.0 if wait > 10 else 100.0 for wait in BURSTS]
    table = steps_of(slow, data_wait_ms=[50.0 if wait > 10 else 5.0 for wait in BURSTS])
    assert found_data_causes(table) == {}


def test_a_wait_in_every_step_from_a_share_on() -> None:
    found = found_data_causes(waiting([30.0] * MIN_STEPS, work_ms=170.0))["data_wait"]
    assert found.numbers == {"wait_ms": 30.0, "step_ms": 200.0, "share": 0.15} and found.strength == 0.15
    assert found.text in SENTENCES
    assert found_data_causes(waiting([29.0] * MIN_STEPS, work_ms=171.0)) == {}
    assert found_data_causes(waiting([30.0] * (MIN_STEPS - 1), work_ms=70.0)) == {}, "too few steps"
    assert found_data_causes(waiting([0.0] * 60)) == {} == found_data_causes(steps_of([100.0] * 60))


def test_both_where_both_are_so() -> None:
    assert list(found_data_causes(waiting([wait + 20 for wait in BURSTS]))) == ["data_wait_bursts", "data_wait"]


def test_a_step_waits_as_long_as_the_rank_that_waits_longest() -> None:
    found = found_data_causes(waiting([1.0] * 60, work_ms=99.0), waiting([40.0] * 60, work_ms=60.0, rank=1))["data_wait"]
    assert found.numbers["wait_ms"] == 40.0 and found.n == 60


def test_only_steps_of_the_window_without_a_pause_count() -> None:
    waits = [90.0 if step < 30 else 1.0 for step in range(60)]
    window = Window(first_step=30, last_step=59, n=30, warmup_steps=30)
    assert found_data_causes(waiting(waits, work_ms=100.0), span=WindowSpan(window=window)) == {}
    assert found_data_causes(waiting(waits, work_ms=100.0), pauses=pauses_of(*((0, step, "eval", 1.0) for step in range(30)))) == {}
    first = Window(first_step=0, last_step=29, n=30, warmup_steps=0)
    found = found_data_causes(waiting(waits, work_ms=100.0), span=WindowSpan(window=first))["data_wait"]
    assert found.n == 30 and found.window == "steps 0 to 29"


def test_time_that_the_machine_below_took() -> None:
    found = causes(on=host(cpu_steal_pct=np.tile([0.0, 30.0], 30)))
    assert list(found) == ["host_steal"]
    assert found["host_steal"].text in SENTENCES


def test_processors_busy_with_what_is_not_the_run() -> None:
    busy = np.where(np.arange(60) < 30, 96.0, 30.0)
    found = causes(on=host(cpu_user_pct=busy))
    assert list(found) == ["host_load"]
    assert found["host_load"].numbers["contended_ratio"] == 0.5 and found["host_load"].text in SENTENCES


def test_whose_load_it_is_is_unknown_without_the_number_of_processors() -> None:
    assert causes(on=host(cpu_user_pct=96.0), cores=None) == {}
    assert causes(on=host(cpu_user_pct=96.0).drop("tree_cpu_pct")) == {}


def of_host(cores: int | None = 4, samples: int = 20, **columns: float | list[float | None]) -> list[JitterCause]:
    """Causes of a table of these columns, each a value or one a sample."""
    cells = {name: value if isinstance(value, list) else [value] * samples for name, value in columns.items()}
    table = pl.DataFrame({"epoch_sec": [float(at) for at in range(samples)], **cells}, strict=False)
    return list(host_causes(table, WindowSpan(), cores))


BUSY: dict[str, float] = {"cpu_user_pct": 90.0, "cpu_system_pct": 5.0, "load1": 4.0}


@pytest.mark.parametrize(("steal", "is_cause"), [(5.0, False), (5.1, True)])
def test_from_where_on_stolen_time_matters(steal: float, is_cause: bool) -> None:
    found = of_host(cpu_steal_pct=steal)
    assert bool(found) is is_cause
    assert [cause.numbers["steal_max_pct"] for cause in found] == [steal] * is_cause
    assert [cause.strength for cause in found] == [pytest.approx(0.051)] * is_cause


def test_samples_without_a_value_are_not_counted() -> None:
    assert of_host(cpu_steal_pct=[50.0] * 9 + [None] * 11) == []
    (found,) = of_host(cpu_steal_pct=[50.0] * 10 + [None] * 10)
    assert found.n == 10 and found.file == "host_telemetry.csv"
    assert of_host(**BUSY, tree_cpu_pct=[100.0] * 9 + [None] * 11) == []
    assert len(of_host(**BUSY, tree_cpu_pct=[100.0] * 10 + [None] * 10)) == 1


@pytest.mark.parametrize(("own", "is_cause"), [(300.0, True), (304.0, False)])
def test_others_must_take_a_fifth_of_all_processors(own: float, is_cause: bool) -> None:
    """95 % of 4 processors are busy; 300 % of one are 75 % of all."""
    assert bool(of_host(**BUSY, tree_cpu_pct=own)) is is_cause


@pytest.mark.parametrize(("busy_samples", "is_cause"), [(3, False), (4, True)])
def test_others_must_take_it_in_a_fifth_of_the_samples(busy_samples: int, is_cause: bool) -> None:
    user = [90.0] * busy_samples + [10.0] * (20 - busy_samples)
    found = of_host(cpu_user_pct=user, cpu_system_pct=0.0, tree_cpu_pct=40.0, load1=1.0)
    assert bool(found) is is_cause
    assert not found or found[0].numbers == {"contended_ratio": 0.2, "others_pct": 80.0, "own_pct": 10.0, "cores": 4}


@pytest.mark.parametrize(("load", "is_cause"), [(5.9, False), (6.0, True)])
def test_three_processes_for_two_processors_are_a_crowd(load: float, is_cause: bool) -> None:
    found = of_host(cpu_user_pct=90.0, cpu_system_pct=0.0, tree_cpu_pct=360.0, load1=load)
    assert bool(found) is is_cause
    assert [cause.numbers for cause in found] == [{"load": 6.0, "busy_ratio": 1.0, "own_pct": 90.0, "cores": 4}] * is_cause
    assert [cause.strength for cause in found] == [pytest.approx(1 / 3)] * is_cause


def test_a_crowd_in_half_of_the_samples_and_with_a_load_that_is_known() -> None:
    half = [95.0] * 10 + [10.0] * 10
    crowd = {"cpu_user_pct": half, "cpu_system_pct": 0.0, "tree_cpu_pct": 380.0}
    assert of_host(**crowd, load1=8.0)[0].numbers["busy_ratio"] == 0.5
    assert of_host(**{**crowd, "cpu_user_pct": [95.0] * 9 + [10.0] * 11}, load1=8.0) == []
    assert of_host(**crowd, load1=[8.0] * 19 + [None]) == []


GAP_ACCOUNT = TelemetryAccount(gpu=SamplerAccount(interval_s=1.0), host=SamplerAccount(interval_s=2.0))


def looks(*at: float) -> pl.DataFrame:
    return pl.DataFrame({"epoch_sec": list(at)}, schema={"epoch_sec": pl.Float64})


def found_gap_causes(samples: TelemetryTables, span: WindowSpan, account: TelemetryAccount = GAP_ACCOUNT) -> list:
    return list(gap_causes(samples, account, span))


def test_a_sampler_that_came_late_is_reported_with_what_it_missed() -> None:
    # 0 to 20 s, with nothing between 10 and 15: one interval of the five seconds is as it should be.
    table = looks(*range(11), *range(15, 21))
    (found,) = found_gap_causes(TelemetryTables(gpu=table), WindowSpan(first_t=0.0, last_t=20.0))
    assert found.kind == "telemetry_gaps" and found.file == "gpu_telemetry.csv" and found.window == "the whole run"
    assert found.numbers == {"gaps": 1, "longest_s": 5.0, "lost_ratio": 0.2, "interval_s": 1.0}
    assert found.text in SENTENCES
    assert found.n == 18 and found.strength == pytest.approx(GAP_WEIGHT * 0.2)


def test_what_is_before_the_first_sample_or_after_the_last_was_not_seen_either() -> None:
    (found,) = found_gap_causes(TelemetryTables(gpu=looks(*range(5, 16))), WindowSpan(first_t=0.0, last_t=20.0))
    assert found.numbers["gaps"] == 2 and found.text in SENTENCES and found.numbers["longest_s"] == 5.0
    assert found_gap_causes(TelemetryTables(gpu=looks(*range(5, 16))), WindowSpan()) == [], (
        "of a window that is not known the ends are not either"
    )


def test_no_look_at_all_is_one_gap() -> None:
    (found,) = found_gap_causes(TelemetryTables(gpu=looks()), WindowSpan(first_t=0.0, last_t=20.0))
    assert found.numbers["lost_ratio"] == pytest.approx(0.95) and found.n == 1


@pytest.mark.parametrize(
    ("samples", "span"),
    [
        (TelemetryTables(), WindowSpan(first_t=0.0, last_t=20.0)),
        (TelemetryTables(gpu=looks(*range(0, 21, 2))), WindowSpan(first_t=0.0, last_t=20.0)),
        (TelemetryTables(gpu=looks(0.0, 5.0)), WindowSpan(first_t=0.0, last_t=MIN_INTERVALS - 0.5)),
        (TelemetryTables(gpu=looks(*range(98), 100)), WindowSpan(first_t=0.0, last_t=100.0)),
    ],
)
def test_nothing_of_no_table_of_two_intervals_of_a_short_window_and_of_little_lost(samples: TelemetryTables, span: WindowSpan) -> None:
    assert found_gap_causes(samples, span) == []


def test_the_least_window_and_the_least_loss_are_reported() -> None:
    assert len(found_gap_causes(TelemetryTables(gpu=looks(0.0, 4.0)), WindowSpan(first_t=0.0, last_t=float(MIN_INTERVALS)))) == 1
    # 2.5 s late in 30 s of a window, of which one interval is as it should be: 1.5 s, one in twenty.
    every = [at / 2 for at in range(51)] + [27.5, 28.0, 28.5, 29.0, 29.5, 30.0]
    (found,) = found_gap_causes(TelemetryTables(gpu=looks(*every)), WindowSpan(first_t=0.0, last_t=30.0))
    assert found.numbers["lost_ratio"] == 0.05


def test_the_worse_of_two_samplers_and_none_without_an_interval() -> None:
    both = TelemetryTables(gpu=looks(*range(11), *range(15, 21)), host=looks(0.0, 20.0))
    (found,) = found_gap_causes(both, WindowSpan(first_t=0.0, last_t=20.0))
    assert found.file == "host_telemetry.csv" and found.text in SENTENCES
    assert found_gap_causes(both, WindowSpan(first_t=0.0, last_t=20.0), TelemetryAccount(gpu=SamplerAccount(interval_s=0.0))) == []
