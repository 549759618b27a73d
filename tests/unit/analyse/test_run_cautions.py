"""What is said of one run's figures."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from seatrial.analyse.measure import measure_run
from seatrial.records.caution import Caution
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
