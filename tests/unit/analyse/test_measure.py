"""What one run measured, with its cautions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.measure import measure_run
from seatrial.collect.manifest import manifest_row
from seatrial.records.attempt import Provenance, StepTables
from seatrial.records.caution import Caution
from seatrial.records.measure import DebugSetting, RunMeasure
from seatrial.records.plan import RunSpec, TimingSpec
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables
from tests.unit.analyse import factory
from tests.unit.analyse.factory import STARTED_T, attempt, golden, steps_of, tables

SENTENCES = golden("measure")


def test_two_ranks_the_slower_one_gives_the_time_and_both_the_work() -> None:
    fast, slow = (
        factory.steps_of([40.0] * 100, rank=0, samples=8, tokens=800),
        factory.steps_of([50.0] * 100, rank=1, samples=8, tokens=800),
    )
    found = measure_run(factory.attempt(factory.spec(ranks=2)), factory.tables(fast, slow))
    assert found.window is not None
    assert (found.window.first_step, found.window.last_step, found.window.n, found.window.steady) == (0, 99, 100, True)
    assert found.window_s == pytest.approx(5.0)
    assert found.steps_per_s == pytest.approx(20.0)
    assert found.samples_per_s == pytest.approx(2 * 8 * 20.0)
    assert found.tokens_per_s == pytest.approx(2 * 800 * 20.0)
    assert found.wall_p50_ms == found.wall_p90_ms == 50.0
    assert found.wall_p90_over_p50 == 1.0
    assert found.startup_s == pytest.approx(5.05)
    assert found.last_step == 99


def test_rank_0_alone_represents_all() -> None:
    run = factory.spec(ranks=4, rank_scope="rank0")
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([100.0] * 50, samples=2), world_size=4))
    assert found.samples_per_s == pytest.approx(4 * 2 * 10)
    assert found.cautions == ()


def test_steps_with_a_pause_on_any_rank_are_left_out_of_time_work_and_count() -> None:
    times = [50.0] * 100
    times[60] = 900.0
    ranks = [factory.steps_of(times, rank=rank, samples=4) for rank in range(2)]
    found = measure_run(factory.attempt(), factory.tables(*ranks, pauses=factory.pauses_of((1, 60, "eval", 800.0))))
    assert found.window is not None
    assert (found.window.n, found.window.excluded_steps) == (99, 1)
    assert found.samples_per_s == pytest.approx(2 * 4 * 20)


@pytest.mark.parametrize(("window", "bounds"), [("50:", (50, 199)), (":99", (0, 99)), ("10:19", (10, 19))])
def test_a_window_in_the_plan_is_kept_to(window: str, bounds: tuple[int, int]) -> None:
    run = factory.spec(timing=TimingSpec(window=window))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 200)))
    assert found.window is not None
    assert (found.window.first_step, found.window.last_step) == bounds
    assert found.window.reason in SENTENCES


def test_steps_that_took_no_time_have_no_rate() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([0.0] * 20)))
    assert found.window is not None and (found.wall_p50_ms, found.wall_p90_over_p50, found.window_s, found.steps_per_s) == (
        0.0,
        None,
        None,
        None,
    )


def test_one_step_gives_no_window() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([50.0])))
    assert found.window is None
    assert found.duration_s == 60.0
    assert [caution.kind for caution in found.cautions] == ["too_few_steps"]


def test_steps_without_any_time_give_no_window() -> None:
    untimed = factory.steps_of([50.0] * 20).with_columns(iter_ms=pl.lit(None, pl.Float64))
    found = measure_run(factory.attempt(), factory.tables(untimed))
    assert (found.window, found.steps_per_s, found.last_step) == (None, None, 19)


def test_a_whole_run_has_its_length_only() -> None:
    found = measure_run(factory.attempt(duration_s=12.5), factory.tables(source="whole", world_size=2))
    assert (found.source, found.duration_s, found.window, found.world_size) == ("whole", 12.5, None, 2)


def test_printed_rows_count_the_steps_between_them() -> None:
    rows = factory.steps_of([50.0] * 30).with_columns(pl.col("step") * 10, span=pl.lit(10))
    rows = rows.with_columns(iter_ms=pl.when(pl.col("step") == 0).then(None).otherwise(pl.col("iter_ms")))
    run = factory.spec(workload={"samples_per_step": 4.0}, ranks=2)
    found = measure_run(factory.attempt(run), factory.tables(rows, source="log:nanogpt", world_size=2))
    assert found.window is not None and found.window.n == 290
    assert found.steps_per_s == pytest.approx(20.0)
    assert found.samples_per_s == pytest.approx(2 * 4 * 20.0)


def test_samples_that_some_steps_lack_give_no_rate() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([50.0] * 20, samples=[4.0] * 19 + [None])))
    assert found.samples_per_s is None
    assert found.steps_per_s is not None


def test_a_script_of_unknown_length_gets_timing_points_too() -> None:
    run = factory.spec(steps=None, timing=TimingSpec(log_every=50, timing_window=10, tail_points=20))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 25)))
    assert [point.step for point in found.timing_points] == list(range(0, 25, 2))
    assert found.stage1["tail_points_used"] == 6


def test_a_loss_of_any_rank_that_is_no_number_is_no_fall() -> None:
    falling = [5.0 - 0.1 * step for step in range(16)]
    silent = factory.tables(factory.steps_of([50.0] * 16, loss=falling), factory.steps_of([50.0] * 16, rank=1))
    assert measure_run(factory.attempt(), silent).loss_falls is True
    ranks = [factory.steps_of([50.0] * 16, rank=0, loss=falling), factory.steps_of([50.0] * 16, rank=1, loss=[*falling[:15], math.nan])]
    found = measure_run(factory.attempt(), factory.tables(*ranks))
    assert (found.last_loss, found.loss_falls) == (pytest.approx(3.5), False)


def test_start_up_ends_with_the_slowest_ranks_first_step() -> None:
    ranks = [factory.steps_of([100.0] * 20, rank=0), factory.steps_of([9000.0] + [100.0] * 19, rank=1)]
    assert measure_run(factory.attempt(), factory.tables(*ranks)).startup_s == pytest.approx(14.0)
    lost = [factory.steps_of([100.0] * 20, rank=0), factory.steps_of([100.0] * 20, rank=1).slice(5)]
    assert measure_run(factory.attempt(), factory.tables(*lost)).startup_s == pytest.approx(5.1), "its first step is lost"
    assert measure_run(factory.attempt(started_t=STARTED_T + 1e6), factory.tables(*lost)).startup_s is None, "the clock was set back"


@pytest.mark.parametrize(("first_step", "startup_s"), [(0, 5.1), (1, 5.1), (2, None), (50, None)])
def test_start_up_of_a_log_is_known_when_its_first_line_is_of_the_first_step(first_step: int, startup_s: float | None) -> None:
    printed = factory.steps_of([100.0] * 20, first_step=first_step)
    found = measure_run(factory.attempt(), factory.tables(printed, source="log:nanogpt"))
    assert found.startup_s == (startup_s and pytest.approx(startup_s))
    resumed = measure_run(factory.attempt(), factory.tables(printed, source="events"))
    assert resumed.startup_s == pytest.approx(5.1)


def test_losses_and_steps_of_a_training_are_those_of_all_its_attempts_and_times_of_the_last() -> None:
    """Steps 6 and 7 were lost with the first attempt, all of the second's with it."""
    first = factory.tables(factory.steps_of([500.0] * 8, loss=[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 0.1, 0.1]))
    lost = factory.tables(factory.steps_of([500.0] * 3, first_step=6, loss=[0.2, 0.2, 0.2]))
    last = factory.tables(factory.steps_of([100.0] * 20, first_step=6, loss=[3.0] * 20))
    found = measure_run(factory.attempt(), last, earlier=[first, factory.tables(), lost])
    assert (found.first_loss, found.last_loss, found.steps_done, found.loss_falls) == (9.0, 3.0, 26, True)
    assert found.steps_per_s == pytest.approx(10.0) and found.window is not None and found.window.first_step >= 6
    alone = measure_run(factory.attempt(), last)
    assert (alone.first_loss, alone.steps_done) == (3.0, 20)


def test_lines_that_came_in_one_chunk_have_no_start_up() -> None:
    printed = factory.steps_of([100.0] * 20)
    chunk = printed.with_columns(m=pl.when(pl.col("step") < 5).then(pl.lit(107.0)).otherwise("m"), t=pl.lit(factory.STARTED_T + 12.0))
    assert measure_run(factory.attempt(), factory.tables(chunk, source="log:nanogpt")).startup_s is None


def test_tables_show_the_batch_that_the_rates_are_of() -> None:
    run = factory.spec(ranks=2, steps=240)
    ranks = [factory.steps_of([100.0] * 240, rank=rank, samples=8) for rank in range(2)]
    found = measure_run(factory.attempt(run), factory.tables(*ranks))
    assert found.stage1["global_batch"] == 16 and isinstance(found.stage1["global_batch"], int)
    assert found.stage1["tail_samples_per_sec"] == pytest.approx(160.0)
    row = manifest_row(factory.attempt(run), found)
    assert row["global_batch"] == 16


def test_steps_of_different_size_have_no_batch() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([100.0] * 20, samples=[8.0, 7.0] * 10)))
    assert found.stage1["global_batch"] is None
    known = measure_run(factory.attempt(factory.spec(settings={"micro_batch": 4})), factory.tables(factory.steps_of([100.0] * 20)))
    assert known.stage1["global_batch"] == 4


@pytest.mark.parametrize(
    ("numbers", "done"),
    [([0, 1, 2], 3), ([1, 2, 3], 3), ([10, 20, 30], 30), ([100, 110, 120], 30), ([0], 1), ([5], 1), ([0, 50, 100], 101)],
)
def test_how_many_steps_were_done(numbers: list[int], done: int) -> None:
    rows = steps_of([50.0] * len(numbers)).with_columns(step=pl.Series(numbers))
    assert measure_run(attempt(), tables(rows)).steps_done == done


ACCOUNT = TelemetryAccount(host=SamplerAccount(interval_s=1.0))
SECOND = 1000.0


def host_samples(count: int = 60, **columns: float) -> pl.DataFrame:
    """A sample a second from the run's start on; a busy host by default."""
    cells = {
        "host_index": 0,
        "cpu_user_pct": 95.0,
        "cpu_system_pct": 4.0,
        "tree_cpu_pct": 100.0,
        "load1": 8.0,
        "rss_kib": 1024.0,
        **columns,
    }
    return pl.DataFrame({"epoch_sec": STARTED_T + np.arange(count), **{name: [value] * count for name, value in cells.items()}})


def sampled(
    samples: TelemetryTables, *, provenance: Provenance | None = None, steps: pl.DataFrame | None = None, window: str = "auto"
) -> RunMeasure:
    own = Caution(kind="own", text="Of the steps.")
    made = replace(attempt(factory.spec(timing=TimingSpec(window=window)), provenance=provenance), telemetry=ACCOUNT)
    return measure_run(made, tables(steps_of([SECOND] * 40) if steps is None else steps, cautions=(own,)), samples)


def test_samples_become_figures_and_cautions_come_after_those_of_the_steps() -> None:
    skipped = Caution(kind="damaged", text="A line was skipped.")
    found = sampled(TelemetryTables(host=host_samples(), cautions=(skipped,)))
    assert found.telemetry is not None and found.by_host == ()
    assert [one.kind for one in found.cautions][:2] == ["own", "damaged"]


def test_the_number_of_processors_of_one_host_is_the_runs_and_of_many_each_one_s_own() -> None:
    alone = sampled(TelemetryTables(host=host_samples()), provenance=Provenance(fingerprint="f0", cpu_count=4))
    assert [cause.numbers["cores"] for cause in alone.jitter_causes] == [4]
    facts = {"node1": {"cpu_count": "8"}, "node2": {"cpu_count": "many"}, "node3": {}, "node4": {"cpu_count": "0"}}
    many = sampled(
        TelemetryTables(host=host_samples(), hosts=("node1",)), provenance=Provenance(fingerprint="f0", cpu_count=4, hosts=facts)
    )
    assert [cause.numbers["cores"] for cause in many.jitter_causes] == [8]
    assert [one.host for one in many.by_host] == ["node1"]


def test_samples_of_a_clock_that_was_set_meanwhile_are_not_matched_with_the_steps() -> None:
    steps = steps_of([SECOND] * 40)
    jumped = steps.with_columns(t=pl.when(pl.col("step") >= 20).then(pl.col("t") + 3600.0).otherwise(pl.col("t")))
    samples = TelemetryTables(host=host_samples(), hosts=("node1",))
    assert sampled(samples, steps=steps).by_host and not sampled(samples, steps=jumped).by_host
    assert sampled(samples, steps=jumped).jitter_causes == ()


def test_figures_and_causes_are_those_of_the_window() -> None:
    """The host was busy after the window only."""
    late = host_samples().with_columns(cpu_user_pct=pl.when(pl.col("epoch_sec") > STARTED_T + 30).then(95.0).otherwise(5.0))
    found = sampled(TelemetryTables(host=late), provenance=Provenance(fingerprint="f0", cpu_count=4), window="5:20")
    assert found.telemetry["host_cpu_busy_mean_pct"] == 9.0
    assert found.jitter_causes == ()


def test_a_straggler_is_a_cause_of_uneven_steps() -> None:
    found = measure_run(attempt(factory.spec(ranks=4)), factory.run(4, 60, extra={(2, "fwd"): 20.0}), TelemetryTables())
    assert [(cause.kind, cause.numbers["rank"]) for cause in found.jitter_causes] == [("slow_rank", 2)]


def test_ends_are_those_of_the_slowest_rank_and_the_length_is_rank_0s() -> None:
    fast, slow = steps_of([100.0, 100.0, 100.0]), steps_of([150.0, 150.0, 150.0], rank=1)
    found = measure_run(attempt(), tables(fast, slow))
    assert (found.first_step_t, found.last_step_t, found.loop_s) == pytest.approx((STARTED_T + 5.15, STARTED_T + 5.45, 0.2))


@pytest.mark.parametrize(("m", "loop_s"), [([5.0], None), ([5.0, 4.0], None), ([5.0, 5.0], 0.0), ([5.0, 5.5], 0.5)])
def test_the_length_of_the_loop_is_by_the_monotonic_clock(m: list[float], loop_s: float | None) -> None:
    steps = steps_of([100.0] * len(m)).with_columns(m=pl.Series(m))
    assert measure_run(attempt(), tables(steps)).loop_s == loop_s


def test_steps_without_a_wall_clock_have_no_time() -> None:
    found = measure_run(attempt(), tables(steps_of([100.0, 100.0]).with_columns(t=pl.Series([math.nan, STARTED_T]))))
    assert (found.first_step_t, found.last_step_t) == (None, STARTED_T)


def cautions(*steps: pl.DataFrame, source: str = "events") -> list[Caution]:
    return list(measure_run(factory.attempt(factory.spec("a")), factory.tables(*steps, source=source)).cautions)


def kinds(*steps: pl.DataFrame, source: str = "events") -> list[str]:
    return [caution.kind for caution in cautions(*steps, source=source)]


def test_a_step_that_holds_much_of_the_time_is_named() -> None:
    times = [100.0] * 60
    times[50] = 10_000.0
    found = cautions(factory.steps_of(times))
    assert [caution.kind for caution in found] == ["one_step_dominates"]
    assert found[0].numbers == {"step": 50, "ms": 10_000.0, "share": pytest.approx(10 / 15.9, abs=1e-4)}
    assert found[0].subject == "a_r1"
    assert found[0].text in SENTENCES


@pytest.mark.parametrize(("slow_ms", "is_dominant"), [(1474.0, False), (1476.0, True)])
def test_a_fifth_of_the_time_is_the_limit(slow_ms: float, is_dominant: bool) -> None:
    times = [100.0] * 60
    times[40] = slow_ms
    assert (kinds(factory.steps_of(times)) == ["one_step_dominates"]) is is_dominant


def test_equal_steps_of_a_short_run_do_not_dominate() -> None:
    assert kinds(factory.steps_of([100.0] * 4)) == ["no_steady_state"]


def test_lines_of_several_steps_are_named_by_all_of_them() -> None:
    rows = factory.steps_of([100.0] * 40 + [9000.0] + [100.0] * 19).with_columns(step=pl.col("step") * 10 + 10, span=pl.lit(10))
    found = cautions(rows, source="log:nanogpt")
    assert [caution.kind for caution in found] == ["one_step_dominates"]
    assert found[0].text in SENTENCES


def test_lost_steps_are_a_caution_with_the_ranks() -> None:
    torn = factory.steps_of([100.0] * 60, rank=1).filter((pl.col("step") % 2 == 0) | (pl.col("step") > 53))
    (found,) = cautions(factory.steps_of([100.0] * 60), torn)
    assert (found.kind, found.numbers) == ("steps_lost", {"steps": 27, "ranks": "1"}) and found.text in SENTENCES
    many = [factory.steps_of([100.0] * 60, rank=rank).filter(pl.col("step") != 20 + rank) for rank in range(6)]
    assert cautions(*many)[0].text in SENTENCES and cautions(*many[:2])[0].text in SENTENCES


def test_lines_of_a_script_are_not_lost_steps() -> None:
    rows = factory.steps_of([100.0] * 60).filter(pl.col("step") != 30)
    assert kinds(rows, source="log:nanogpt") == []


def by_kind(tables: StepTables, spec: RunSpec | None = None) -> dict[str, Caution]:
    return {caution.kind: caution for caution in measure_run(attempt(spec or factory.spec("a")), tables).cautions}


@pytest.mark.parametrize(("asked", "is_other"), [(60, False), (61, False), (59, False), (62, True), (58, True)])
def test_another_number_of_steps_than_the_plan_asks_for(asked: int, is_other: bool) -> None:
    found = by_kind(factory.tables(factory.steps_of([100.0] * 60)), factory.spec("a", steps=asked))
    assert ("other_number_of_steps" in found) is is_other
    assert not is_other or found["other_number_of_steps"].text in SENTENCES


def test_ranks_that_took_different_numbers_of_steps() -> None:
    ranks = [factory.steps_of([100.0] * count, rank=rank) for rank, count in enumerate((60, 40, 50))]
    found = by_kind(factory.tables(*ranks), factory.spec("a", steps=60))["other_number_of_steps"]
    assert found.numbers == {"asked": 60, "least": 40, "most": 60} and found.text in SENTENCES
    assert "other_number_of_steps" not in by_kind(factory.tables(factory.steps_of([100.0] * 10)))


def test_the_first_loss_that_is_no_number_is_named() -> None:
    first = factory.steps_of([100.0] * 60, loss=[1.0] * 40 + [float("inf")] * 20)
    second = factory.steps_of([100.0] * 60, rank=1, loss=[1.0] * 30 + [float("nan")] + [1.0] * 29)
    found = by_kind(factory.tables(first, second))["loss_not_finite"]
    assert found.numbers == {"step": 30, "rank": 1, "losses": 21, "of": 120}
    assert found.text in SENTENCES
    assert (
        by_kind(factory.tables(factory.steps_of([100.0] * 60))) == {} == by_kind(factory.tables(factory.steps_of([100.0] * 60, loss=1.0)))
    )


def test_what_the_workload_warns_of_and_axes_without_effect() -> None:
    effective = {"amp": ("bf16", "fp32", "caution: this GPU knows no bf16"), "mb": (8, 4, "memory"), "nw": ("auto", 2, "cores")}
    tables = factory.tables(factory.steps_of([100.0] * 60), effective=factory.effective(effective))
    found = by_kind(tables, factory.spec("a", axes={"mb": 8, "nw": "auto", "lr": 1}))
    assert found["workload_warns"].text in SENTENCES
    assert found["axis_without_effect"].text in SENTENCES
    assert len(found) == 2
    none = factory.tables(factory.steps_of([100.0] * 60), effective=factory.effective({"mb": (8, None, "not used")}))
    assert by_kind(none, factory.spec("a", axes={"mb": 8}))["axis_without_effect"].text in SENTENCES


def test_ranks_that_wrote_nothing_are_reported_where_all_were_to_write() -> None:
    tables = factory.tables(factory.steps_of([100.0] * 60), world_size=4)
    found = by_kind(tables, factory.spec("a", rank_scope="all"))["ranks_not_seen"]
    assert found.numbers == {"ranks": 1, "world_size": 4}
    assert found.text in SENTENCES
    assert by_kind(tables, factory.spec("a", rank_scope="rank0")) == {}
    two = factory.tables(factory.steps_of([100.0] * 60), world_size=2)
    assert by_kind(two, factory.spec("a", rank_scope="all"))["ranks_not_seen"].text in SENTENCES


def test_too_few_steps_in_a_window_that_the_plan_gives() -> None:
    spec = factory.spec("a", timing=TimingSpec(window="50:59"))
    found = by_kind(factory.tables(factory.steps_of([100.0] * 20)), spec)["too_few_steps"]
    assert found.text in SENTENCES
    assert found.numbers == {"rows": 20}
    measured = measure_run(attempt(spec), tables(steps_of([100.0] * 20)))
    assert (measured.window, measured.steps_per_s) == (None, None)


def setting(name: str, why: str = "it logs", *, varied: bool = False) -> DebugSetting:
    return DebugSetting(name=name, value="1", source="env", why=why, varied=varied)


def debug_cautions(*settings: DebugSetting) -> list[Caution]:
    return list(measure_run(attempt(factory.spec("a")), tables(steps_of([100.0] * 60), debug=settings)).cautions)


def test_what_is_on_what_it_does_and_where_it_is_switched_off() -> None:
    (found,) = debug_cautions(setting("NCCL_DEBUG"), setting("TRACE"), setting("anomaly", "it checks"), setting("profiler"))
    assert (found.kind, found.subject, found.numbers) == ("debug_on", "a_r1", {"settings": 4})
    assert found.text in SENTENCES


def test_of_many_the_first_are_named_and_all_are_switched_off() -> None:
    (found,) = debug_cautions(*(setting(f"VAR{at}") for at in range(6)))
    assert found.text in SENTENCES


def test_a_switch_that_the_plan_turns_is_reported_separately() -> None:
    fixed, varied = debug_cautions(setting("TRACE"), setting("NCCL_DEBUG", varied=True))
    assert (fixed.kind, varied.kind, varied.subject, varied.numbers) == ("debug_on", "debug_varied", "a_r1", {"settings": 1})
    assert fixed.text in SENTENCES
    assert varied.text in SENTENCES
