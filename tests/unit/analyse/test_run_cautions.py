"""What is said of one run's figures."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from seatrial.analyse.measure import measure_run
from seatrial.analyse.run_cautions import run_cautions
from seatrial.analyse.window import count_steps
from seatrial.records.caution import Caution
from seatrial.records.run_spec import RunSpec, TimingSpec
from seatrial.records.steps import StepTables
from tests.unit.analyse import factory


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
    assert found[0].text == (
        "Step 50 took 10000 ms, 63% of the window's time: name a checkpoint or an evaluation with probe.pause, so that "
        "it does not count, or run more steps."
    )


@pytest.mark.parametrize(("slow_ms", "said"), [(1474.0, False), (1476.0, True)])
def test_a_fifth_of_the_time_is_the_limit(slow_ms: float, said: bool) -> None:
    times = [100.0] * 60
    times[40] = slow_ms
    assert (kinds(factory.steps_of(times)) == ["one_step_dominates"]) is said


def test_a_pause_by_name_is_not_said_again() -> None:
    times = [100.0] * 60
    times[50] = 10_000.0
    tables = factory.tables(factory.steps_of(times), pauses=factory.pauses_of((0, 50, "eval", 9900.0)))
    assert measure_run(factory.attempt(), tables).cautions == ()


def test_equal_steps_of_a_short_run_do_not_dominate() -> None:
    assert kinds(factory.steps_of([100.0] * 4)) == ["no_steady_state"]


def test_lines_of_several_steps_are_named_by_all_of_them() -> None:
    rows = factory.steps_of([100.0] * 40 + [9000.0] + [100.0] * 19).with_columns(step=pl.col("step") * 10 + 10, span=pl.lit(10))
    found = cautions(rows, source="log:nanogpt")
    assert [caution.kind for caution in found] == ["one_step_dominates"]
    assert found[0].text.startswith("Steps 401 to 410 took 90000 ms, 60% ")


def test_lost_steps_are_said_with_the_rank() -> None:
    torn = factory.steps_of([100.0] * 60, rank=1).filter((pl.col("step") % 2 == 0) | (pl.col("step") > 53))
    found = cautions(factory.steps_of([100.0] * 60), torn)
    assert [caution.kind for caution in found] == ["steps_lost"]
    assert found[0].numbers == {"steps": 27, "ranks": "1"}
    assert found[0].text.startswith("Rank 1 has no usable line of 27 steps in between; only steps that every rank has are counted.")


def test_many_ranks_are_told_by_number() -> None:
    torn = [factory.steps_of([100.0] * 60, rank=rank).filter(pl.col("step") != 20 + rank) for rank in range(6)]
    found = cautions(*torn)
    assert found[0].text.startswith("6 ranks have no usable line of up to 1 step in between;")
    assert cautions(*torn[:2])[0].text.startswith("Ranks 0, 1 have no usable line")


def test_lines_of_a_script_are_not_lost_steps() -> None:
    rows = factory.steps_of([100.0] * 60).filter(pl.col("step") != 30)
    assert kinds(rows, source="log:nanogpt") == []


def test_a_loss_that_is_no_number_is_said_with_its_first_step() -> None:
    steps = factory.steps_of([100.0] * 60)
    losses = [3.0] * 40 + [float("nan")] * 19 + [float("inf")]
    (caution,) = (found for found in cautions(steps.with_columns(loss=pl.Series(losses))) if found.kind == "loss_not_finite")
    assert caution.numbers == {"step": 40, "rank": 0, "losses": 20, "of": 60}
    assert caution.text.startswith("The loss is no number from step 40 on (rank 0: nan; 20 of 60 losses)")


def said_of(effective: dict[str, tuple[object, object, str]], **spec: object) -> list[Caution]:
    tables = replace(factory.tables(factory.steps_of([100.0] * 60)), effective=effective)
    return list(measure_run(factory.attempt(replace(factory.spec("a"), **spec)), tables).cautions)


def test_what_a_workload_warns_of_stands_in_the_report() -> None:
    (caution,) = said_of({"model": ("tiny", "tiny", "caution: a toy"), "device": ("auto", "cpu", "no GPU")})
    assert (caution.kind, caution.text) == ("workload_warns", "model is tiny: a toy.")


def test_an_axis_without_effect_is_told() -> None:
    effective = {"prefetch": (4, None, "no workers"), "precision": ("auto", "fp32", "CPU"), "tf32": (True, False, "no GPU")}
    (caution,) = said_of(effective, axes={"prefetch": 4, "precision": "auto"})
    assert caution.kind == "axis_without_effect"
    assert caution.text.startswith("The axis prefetch asks for 4 and this run had none (no workers): groups that differ in it alone")


def said(tables: StepTables, spec: RunSpec | None = None, window: str = "auto") -> dict[str, Caution]:
    counted = count_steps(tables.steps, tables.pauses["step"], window)
    return {caution.kind: caution for caution in run_cautions(counted, tables, spec or factory.spec("a"))}


def test_a_step_of_a_span_is_named_by_its_first_and_last() -> None:
    times = [100.0] * 30
    times[20] = 2_000.0
    steps = factory.steps_of(times, span=5).with_columns(step=pl.int_range(4, 154, 5, dtype=pl.Int64))
    found = said(factory.tables(steps, source="log"))["one_step_dominates"]
    assert found.text.startswith("Steps 100 to 104 took") and found.numbers["step"] == 104


@pytest.mark.parametrize(("asked", "words"), [(60, ""), (61, ""), (59, ""), (62, "asks for 62 steps, and its ranks took 60:"), (58, "60:")])
def test_another_number_of_steps_than_the_plan_asks_for(asked: int, words: str) -> None:
    found = said(factory.tables(factory.steps_of([100.0] * 60)), factory.spec("a", steps=asked))
    assert ("other_number_of_steps" in found) is bool(words)
    assert not words or words in found["other_number_of_steps"].text


def test_ranks_that_took_unlike_numbers_of_steps() -> None:
    ranks = [factory.steps_of([100.0] * count, rank=rank) for rank, count in enumerate((60, 40, 50))]
    found = said(factory.tables(*ranks), factory.spec("a", steps=60))["other_number_of_steps"]
    assert found.numbers == {"asked": 60, "least": 40, "most": 60} and "its ranks took 40 and 60:" in found.text
    assert "other_number_of_steps" not in said(factory.tables(factory.steps_of([100.0] * 10)))


def test_the_first_loss_that_is_no_number_is_named() -> None:
    first = factory.steps_of([100.0] * 60, loss=[1.0] * 40 + [float("inf")] * 20)
    second = factory.steps_of([100.0] * 60, rank=1, loss=[1.0] * 30 + [float("nan")] + [1.0] * 29)
    found = said(factory.tables(first, second))["loss_not_finite"]
    assert found.numbers == {"step": 30, "rank": 1, "losses": 21, "of": 120}
    assert "from step 30 on (rank 1: nan; 21 of 120 losses)" in found.text
    assert said(factory.tables(factory.steps_of([100.0] * 60))) == {} == said(factory.tables(factory.steps_of([100.0] * 60, loss=1.0)))


def test_what_the_workload_warns_of_and_axes_without_effect() -> None:
    effective = {"amp": ("bf16", "fp32", "caution: this GPU knows no bf16"), "mb": (8, 4, "memory"), "nw": ("auto", 2, "cores")}
    tables = factory.tables(factory.steps_of([100.0] * 60), effective=effective)
    found = said(tables, factory.spec("a", axes={"mb": 8, "nw": "auto", "lr": 1}))
    assert found["workload_warns"].text == "amp is fp32: this GPU knows no bf16."
    assert found["axis_without_effect"].text.startswith("The axis mb asks for 8 and this run had 4 (memory): groups")
    assert len(found) == 2
    none = factory.tables(factory.steps_of([100.0] * 60), effective={"mb": (8, None, "not used")})
    assert "this run had none (not used)" in said(none, factory.spec("a", axes={"mb": 8}))["axis_without_effect"].text


def test_ranks_that_wrote_nothing_are_told_where_all_were_to_write() -> None:
    tables = factory.tables(factory.steps_of([100.0] * 60), world_size=4)
    found = said(tables, factory.spec("a", rank_scope="all"))["ranks_not_seen"]
    assert found.numbers == {"ranks": 1, "world_size": 4}
    assert "Only 1 of 4 ranks wrote steps (events_rank1.jsonl and 2 more tells none)" in found.text
    assert said(tables, factory.spec("a", rank_scope="rank0")) == {}
    two = factory.tables(factory.steps_of([100.0] * 60), world_size=2)
    assert "(events_rank1.jsonl tells none)" in said(two, factory.spec("a", rank_scope="all"))["ranks_not_seen"].text


def test_too_few_steps_in_a_window_that_the_plan_gives() -> None:
    spec = factory.spec("a", timing=TimingSpec(window="50:59"))
    found = said(factory.tables(factory.steps_of([100.0] * 20)), spec, "50:59")["too_few_steps"]
    assert found.text.startswith("Only 0 timed steps are left in the window 50:59 that the plan gives, of 20:")
    assert found.numbers == {"rows": 20}
