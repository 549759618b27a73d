"""The parts of the start-up add up to it, whatever the clocks did."""

from __future__ import annotations

import pytest

from seatrial.analyse.measure import measure_run
from seatrial.analyse.startup import startup_split
from seatrial.records.events import STARTUP_PARTS
from seatrial.records.steps import StartupFacts
from seatrial.run_table.run_cells import run_cells
from tests.unit.analyse import factory

# The table's first step of 400 ms ends 5.4 s after launch, at 100.4 on the monotonic clock.
STEPS = factory.steps_of([400.0, 50.0, 50.0])
T = factory.STARTED_T


def facts(**changes: object) -> StartupFacts:
    spans = (("process_group", 0.5, 97.5), ("model", 1.0, 98.5), ("data", 0.25, 99.0), ("data", 0.25, 99.9))
    return StartupFacts(**{"rank": 0, "start_t": T + 2.0, "process_t": T + 1.25, "spans": spans, **changes})


def test_every_part_and_the_rest() -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts()))
    assert split == pytest.approx(
        {"launch": 1.25, "import": 0.75, "process_group": 0.5, "model": 1.0, "data": 0.5, "first_step": 0.4, "other": 1.0}, abs=1e-6
    )
    assert list(split) == [part for part in STARTUP_PARTS if part in split]


def test_the_parts_are_cells_of_the_run_and_add_up_to_its_start_up() -> None:
    attempt = factory.attempt()
    measure = measure_run(attempt, factory.tables(STEPS, startup=facts()))
    assert sum(measure.startup.values()) == pytest.approx(measure.startup_s)
    cells = run_cells(attempt, measure)
    assert (cells["startup_launch_sec"], cells.get("startup_compile_sec")) == (pytest.approx(1.25), None)


def test_the_rank_that_was_ready_last_is_the_one_that_is_split() -> None:
    slow = factory.steps_of([900.0, 50.0, 50.0], rank=1)
    split = startup_split(factory.attempt(), factory.tables(STEPS, slow, startup=facts(rank=1)))
    assert split["first_step"] == pytest.approx(0.9)
    assert sum(split.values()) == pytest.approx(5.9)


def test_a_compiler_inside_the_first_step_is_not_counted_as_the_step_too() -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts(spans=(("compile", 0.3, 100.35),))))
    assert (split["compile"], split["first_step"]) == (pytest.approx(0.3), pytest.approx(0.1))


def test_without_the_age_of_the_process_launch_and_import_are_not_told_apart() -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts(process_t=None)))
    assert "launch" not in split
    assert "import" not in split
    assert split["other"] == pytest.approx(3.0)


@pytest.mark.parametrize("process_t", [T - 30.0, T + 60.0])
def test_a_wall_clock_that_was_corrected_makes_no_part_negative(process_t: float) -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts(process_t=process_t)))
    assert min(split.values()) >= 0
    assert sum(split.values()) == pytest.approx(5.4)
    assert split["model"] == 1.0


def test_nothing_for_a_script_without_the_probe_or_a_clock_set_back_over_the_launch() -> None:
    assert startup_split(factory.attempt(), factory.tables(STEPS, source="log:seed")) == {}
    assert startup_split(factory.attempt(started_t=T + 99.0), factory.tables(STEPS, startup=facts())) == {}
    assert startup_split(factory.attempt(outcome=None), factory.tables(STEPS, startup=facts())) == {}


def test_a_run_that_ended_before_its_first_step_is_not_split() -> None:
    assert startup_split(factory.attempt(), factory.tables(startup=facts())) == {}
